"""The ops of latents that need no model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..types import ANY, BOOLEAN, FLOAT, INT, LATENT, MASK, STRING
from .op_spec import OpSpec
from .schema import ports

_LATENT: Final = ports(latent=LATENT)
_TWO: Final = {"samples1": LATENT, "samples2": LATENT}


def _changed(**more: str) -> OpSpec:
    return OpSpec(args={"samples": LATENT, **more}, outputs=_LATENT)


TABLE: Final[Mapping[str, OpSpec]] = MappingProxyType(
    {
        "latent_zeros": OpSpec(
            args={"width": INT, "height": INT, "batch_size": INT, "channels": INT, "unit": INT},
            optional={"length": INT, "frame_step": INT, "more_frames": INT},
            outputs=_LATENT,
        ),
        "latent_add": OpSpec(args=_TWO, outputs=_LATENT),
        "latent_subtract": OpSpec(args=_TWO, outputs=_LATENT),
        "latent_interpolate": OpSpec(args={**_TWO, "ratio": FLOAT}, outputs=_LATENT),
        "latent_blend": OpSpec(args={**_TWO, "blend_factor": FLOAT}, outputs=_LATENT),
        "latent_concat": OpSpec(args={**_TWO, "dim": STRING}, outputs=_LATENT),
        "latent_multiply": _changed(multiplier=FLOAT),
        "latent_cut": _changed(dim=STRING, index=INT, amount=INT),
        "latent_cut_to_batch": _changed(dim=STRING, slice_size=INT),
        "latent_crop": _changed(width=INT, height=INT, x=INT, y=INT),
        "latent_flip": _changed(flip_method=STRING),
        "latent_rotate": _changed(rotation=STRING),
        "latent_seed_behavior": _changed(seed_behavior=STRING),
        "latent_trim": _changed(trim_amount=INT),
        "latent_replace_frames": OpSpec(
            args={"destination": LATENT, "index": INT}, optional={"source": LATENT}, outputs=_LATENT
        ),
        "latent_composite_masked": OpSpec(
            args={
                "destination": LATENT,
                "source": LATENT,
                "x": INT,
                "y": INT,
                "resize_source": BOOLEAN,
            },
            optional={"mask": MASK},
            outputs=_LATENT,
        ),
        "av_latent_join": OpSpec(
            args={"video_latent": LATENT, "audio_latent": LATENT}, outputs=_LATENT
        ),
        "av_latent_separate": OpSpec(
            args={"av_latent": LATENT}, outputs=ports(video=LATENT, audio=LATENT)
        ),
        "latent_rebatch": OpSpec(
            args={"batch_size": INT},
            numbered={"latents": LATENT},
            outputs=ports(items=ANY, length=INT),
        ),
    }
)
