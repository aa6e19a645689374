"""The ops that lowering may emit: their arguments, outputs and the role of their model.

The bodies live in executors (`runtime/ops`, `runtime/models`). Arguments reach them as constants or
over edges, whichever is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from ..handles import Role
from ..ir import Port
from ..types import CONDITIONING, FLOAT, IMAGE, INT, LATENT, MASK, PATCH, SAMPLER_STATE, STRING
from .schema import ports

SIGMAS: Final = "SIGMAS"  # a tuple of floats, always a constant


class OpSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One op: argument types by name, and what comes out.

    `numbered` arguments may be given any number of times, from none, as `name_0`, `name_1` ...; any
    op with a model takes `patch_N`, the patch nodes that it waits for.
    """

    args: Mapping[str, str]
    outputs: tuple[Port, ...]
    role: Role | None = None
    numbered: Mapping[str, str] = MappingProxyType({})

    def type_of(self, name: str) -> str:
        """The type of an argument. Raises: KeyError: the op takes none of that name."""
        if name in self.args:
            return self.args[name]
        stem, _, number = name.rpartition("_")
        if not number.isdecimal():
            raise KeyError(name)
        if stem == "patch" and self.role is not None:
            return PATCH
        return self.numbered[stem]


OPS: Final[Mapping[str, OpSpec]] = MappingProxyType(
    {
        "text_encode": OpSpec(
            args={"text": STRING},
            outputs=ports(conditioning=CONDITIONING),
            role=Role.TEXT_ENCODER,
        ),
        "empty_latent": OpSpec(
            args={"width": INT, "height": INT, "batch_size": INT}, outputs=ports(latent=LATENT)
        ),
        "sample_begin": OpSpec(
            args={
                "latent": LATENT,
                "seed": INT,
                "sampler": STRING,
                "sigmas": SIGMAS,
                "family": STRING,
            },
            outputs=ports(state=SAMPLER_STATE),
        ),
        "denoise": OpSpec(
            args={
                "state": SAMPLER_STATE,
                "positive": CONDITIONING,
                "negative": CONDITIONING,
                "cfg": FLOAT,
                "sampler": STRING,
                "sigmas": SIGMAS,
                "evaluation": INT,
                "family": STRING,
            },
            outputs=ports(state=SAMPLER_STATE),
            role=Role.DENOISER,
        ),
        "sample_end": OpSpec(
            args={"state": SAMPLER_STATE, "sigmas": SIGMAS, "family": STRING},
            outputs=ports(latent=LATENT),
        ),
        "vae_decode": OpSpec(args={"samples": LATENT}, outputs=ports(image=IMAGE), role=Role.VAE),
        "vae_encode": OpSpec(args={"pixels": IMAGE}, outputs=ports(latent=LATENT), role=Role.VAE),
        "save_image": OpSpec(
            args={"images": IMAGE, "filename_prefix": STRING, "folder": STRING}, outputs=()
        ),
        "load_image": OpSpec(
            args={"path": STRING, "size_bytes": INT, "mtime_ns": INT},
            outputs=ports(image=IMAGE, mask=MASK),
        ),
        "image_scale": OpSpec(
            args={
                "image": IMAGE,
                "upscale_method": STRING,
                "width": INT,
                "height": INT,
                "crop": STRING,
            },
            outputs=ports(image=IMAGE),
        ),
        "image_size": OpSpec(
            args={"image": IMAGE}, outputs=ports(width=INT, height=INT, batch_size=INT)
        ),
        "empty_image": OpSpec(
            args={"width": INT, "height": INT, "batch_size": INT, "color": INT},
            outputs=ports(image=IMAGE),
        ),
    }
)
