"""The ops that lowering may emit: their arguments, outputs and the role of their model.

The bodies live in executors (`runtime/ops`, `runtime/models`). Arguments reach them as constants or
over edges, whichever is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..handles import ModelRef, Role
from ..ir import Port
from ..types import (
    BOOLEAN,
    CONDITIONING,
    ESTIMATES,
    FLOAT,
    IMAGE,
    INT,
    LATENT,
    MASK,
    PATCH,
    RESIDUALS,
    SAMPLER_STATE,
    STRING,
)
from .op_spec import OpSpec as OpSpec
from .ops_conditioning import TABLE as CONDITIONINGS
from .ops_encoding import TABLE as ENCODINGS
from .ops_images import TABLE as IMAGES
from .ops_latents import TABLE as LATENTS
from .ops_sampling import TABLE as SAMPLING
from .ops_texts import TABLE as TEXTS
from .schema import ports

USER_MODEL: Final = "user_model"  # its arguments and outputs are what its model declares
SIGMAS: Final = "SIGMAS"  # a tuple of floats, always a constant
AREA: Final = ("width", "height", "x", "y")
MODEL_SAMPLING: Final = {"model_sampling": STRING}  # where it isn't the family's own
GUIDER: Final = {"guider": STRING, "third": CONDITIONING, "cfg_third": FLOAT}
EVALUATION: Final = {
    "state": SAMPLER_STATE,
    "positive": CONDITIONING,
    "negative": CONDITIONING,
    "cfg": FLOAT,
    "sampler": STRING,
    "sigmas": SIGMAS,
    "evaluation": INT,
    "family": STRING,
}


def spec_of(op: str, model: ModelRef | None) -> OpSpec | None:
    """What `op` takes and gives on `model`; None: there is no such op."""
    declared = model.key.user_class if model else None
    if op != USER_MODEL or declared is None:
        return OPS.get(op)
    return OpSpec(
        args={item.name: item.type for item in declared.inputs},
        outputs=tuple(Port(name=item.name, type=item.type) for item in declared.outputs),
        role=Role.USER,
    )


OPS: Final[Mapping[str, OpSpec]] = MappingProxyType(
    {
        "text_encode": OpSpec(
            args={"text": STRING},
            outputs=ports(conditioning=CONDITIONING),
            role=Role.TEXT_ENCODER,
            numbered={"embedding": STRING},
        ),
        "conditioning_combine": OpSpec(
            args={"conditioning_1": CONDITIONING, "conditioning_2": CONDITIONING},
            outputs=ports(conditioning=CONDITIONING),
        ),
        "conditioning_average": OpSpec(
            args={
                "conditioning_to": CONDITIONING,
                "conditioning_from": CONDITIONING,
                "conditioning_to_strength": FLOAT,
            },
            outputs=ports(conditioning=CONDITIONING),
        ),
        "conditioning_concat": OpSpec(
            args={"conditioning_to": CONDITIONING, "conditioning_from": CONDITIONING},
            outputs=ports(conditioning=CONDITIONING),
        ),
        "conditioning_set_area": OpSpec(
            args={"conditioning": CONDITIONING, **dict.fromkeys(AREA, INT), "strength": FLOAT},
            outputs=ports(conditioning=CONDITIONING),
        ),
        "conditioning_set_area_percentage": OpSpec(
            args={"conditioning": CONDITIONING, **dict.fromkeys(AREA, FLOAT), "strength": FLOAT},
            outputs=ports(conditioning=CONDITIONING),
        ),
        "conditioning_set_mask": OpSpec(
            args={
                "conditioning": CONDITIONING,
                "mask": MASK,
                "strength": FLOAT,
                "set_cond_area": STRING,
            },
            outputs=ports(conditioning=CONDITIONING),
        ),
        "conditioning_set_timestep_range": OpSpec(
            args={"conditioning": CONDITIONING, "start": FLOAT, "end": FLOAT},
            outputs=ports(conditioning=CONDITIONING),
        ),
        "conditioning_zero_out": OpSpec(
            args={"conditioning": CONDITIONING}, outputs=ports(conditioning=CONDITIONING)
        ),
        "set_noise_mask": OpSpec(
            args={"samples": LATENT, "mask": MASK}, outputs=ports(latent=LATENT)
        ),
        "vae_encode_inpaint": OpSpec(
            args={"pixels": IMAGE, "mask": MASK, "grow_mask_by": INT},
            outputs=ports(latent=LATENT),
            role=Role.VAE,
        ),
        "inpaint_conditioning": OpSpec(
            args={
                "positive": CONDITIONING,
                "negative": CONDITIONING,
                "pixels": IMAGE,
                "mask": MASK,
                "noise_mask": BOOLEAN,
            },
            outputs=ports(positive=CONDITIONING, negative=CONDITIONING, latent=LATENT),
            role=Role.VAE,
        ),
        "empty_latent": OpSpec(
            args={"width": INT, "height": INT, "batch_size": INT}, outputs=ports(latent=LATENT)
        ),
        "sample_begin": OpSpec(
            args={
                "latent": LATENT,
                "seed": INT,
                "add_noise": BOOLEAN,
                "sampler": STRING,
                "sigmas": SIGMAS,
                "family": STRING,
            },
            optional={**MODEL_SAMPLING, "mask_by_sigma": FLOAT},
            outputs=ports(state=SAMPLER_STATE),
        ),
        "denoise": OpSpec(
            args=EVALUATION,
            optional={**MODEL_SAMPLING, **GUIDER, "keep_denoised": BOOLEAN},
            outputs=ports(state=SAMPLER_STATE),
            role=Role.DENOISER,
            numbered={"residuals": RESIDUALS, "marker": STRING, "estimates": ESTIMATES},
        ),
        "denoise_hooked": OpSpec(
            args=EVALUATION,
            optional={**MODEL_SAMPLING, **GUIDER, "keep_denoised": BOOLEAN},
            outputs=ports(estimates=ESTIMATES),
            role=Role.DENOISER,
            numbered={"residuals": RESIDUALS, "marker": STRING, "hook": STRING},
        ),
        "sample_adaptive": OpSpec(
            args={
                "state": SAMPLER_STATE,
                "positive": CONDITIONING,
                "negative": CONDITIONING,
                "cfg": FLOAT,
                "sampler": STRING,
                "sigmas": SIGMAS,
                "family": STRING,
            },
            optional={**MODEL_SAMPLING, **GUIDER, "keep_denoised": BOOLEAN},
            outputs=ports(state=SAMPLER_STATE),
            role=Role.DENOISER,
        ),
        "cond_control": OpSpec(
            args={"conditioning": CONDITIONING, "marker": STRING},
            outputs=ports(conditioning=CONDITIONING),
        ),
        "controlnet": OpSpec(
            args={
                "state": SAMPLER_STATE,
                "positive": CONDITIONING,
                "negative": CONDITIONING,
                "cfg": FLOAT,
                "strength": FLOAT,
                "marker": STRING,
                "sampler": STRING,
                "sigmas": SIGMAS,
                "evaluation": INT,
                "family": STRING,
            },
            optional={
                **MODEL_SAMPLING,
                **GUIDER,
                "keep_denoised": BOOLEAN,
                "hint": IMAGE,
                "hint_latent": LATENT,
            },
            outputs=ports(residuals=RESIDUALS),
            role=Role.CONTROLNET,
        ),
        "encode_hint": OpSpec(
            args={"hint": IMAGE, "latent": LATENT},
            outputs=ports(hint_latent=LATENT),
            role=Role.VAE,
        ),
        "sample_end": OpSpec(
            args={
                "state": SAMPLER_STATE,
                "latent": LATENT,
                "sampler": STRING,
                "sigmas": SIGMAS,
                "family": STRING,
            },
            optional=MODEL_SAMPLING,
            outputs=ports(latent=LATENT),
        ),
        "vae_decode": OpSpec(args={"samples": LATENT}, outputs=ports(image=IMAGE), role=Role.VAE),
        "vae_encode": OpSpec(args={"pixels": IMAGE}, outputs=ports(latent=LATENT), role=Role.VAE),
        "vae_decode_tiled": OpSpec(
            args={"samples": LATENT, "tile_size": INT, "overlap": INT},
            outputs=ports(image=IMAGE),
            role=Role.VAE,
        ),
        "vae_encode_tiled": OpSpec(
            args={"pixels": IMAGE, "tile_size": INT, "overlap": INT},
            outputs=ports(latent=LATENT),
            role=Role.VAE,
        ),
        "latent_upscale": OpSpec(
            args={
                "samples": LATENT,
                "upscale_method": STRING,
                "width": INT,
                "height": INT,
                "crop": STRING,
            },
            outputs=ports(latent=LATENT),
        ),
        "latent_upscale_by": OpSpec(
            args={"samples": LATENT, "upscale_method": STRING, "scale_by": FLOAT},
            outputs=ports(latent=LATENT),
        ),
        "latent_composite": OpSpec(
            args={
                "samples_to": LATENT,
                "samples_from": LATENT,
                "x": INT,
                "y": INT,
                "feather": INT,
            },
            outputs=ports(latent=LATENT),
        ),
        "latent_repeat": OpSpec(
            args={"samples": LATENT, "amount": INT}, outputs=ports(latent=LATENT)
        ),
        "latent_batch": OpSpec(
            args={"samples1": LATENT, "samples2": LATENT}, outputs=ports(latent=LATENT)
        ),
        "latent_from_batch": OpSpec(
            args={"samples": LATENT, "batch_index": INT, "length": INT},
            outputs=ports(latent=LATENT),
        ),
        "save_image": OpSpec(
            args={"images": IMAGE, "filename_prefix": STRING, "folder": STRING}, outputs=()
        ),
        "patch_fetch": OpSpec(
            args={"path": STRING, "size_bytes": INT, "mtime_ns": INT}, outputs=ports(patch=PATCH)
        ),
        "patch_trigger": OpSpec(
            args={"path": STRING, "size_bytes": INT, "mtime_ns": INT}, outputs=ports(patch=PATCH)
        ),
        "patch_check": OpSpec(
            args={
                "trigger": PATCH,
                "state": SAMPLER_STATE,
                "path": STRING,
                "size_bytes": INT,
                "mtime_ns": INT,
            },
            outputs=ports(patch=PATCH),
        ),
        "latents_lookup": OpSpec(
            args={"positive": CONDITIONING, "folder": STRING},
            outputs=ports(level=INT, entry=STRING),
            numbered={"key": STRING, "similarity": FLOAT},
        ),
        "latents_resume": OpSpec(
            args={"folder": STRING, "entry": STRING, "seed": INT},
            outputs=ports(state=SAMPLER_STATE),
        ),
        "latents_store": OpSpec(
            args={
                "state": SAMPLER_STATE,
                "positive": CONDITIONING,
                "folder": STRING,
                "key": STRING,
                "max_bytes": INT,
            },
            outputs=(),
        ),
        "load_image": OpSpec(
            args={"path": STRING, "size_bytes": INT, "mtime_ns": INT},
            outputs=ports(image=IMAGE, mask=MASK),
        ),
        "load_image_mask": OpSpec(
            args={"path": STRING, "size_bytes": INT, "mtime_ns": INT, "channel": STRING},
            outputs=ports(mask=MASK),
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
        "image_scale_by": OpSpec(
            args={"image": IMAGE, "upscale_method": STRING, "scale_by": FLOAT},
            outputs=ports(image=IMAGE),
        ),
        "image_scale_to_total_pixels": OpSpec(
            args={
                "image": IMAGE,
                "upscale_method": STRING,
                "megapixels": FLOAT,
                "resolution_steps": INT,
            },
            outputs=ports(image=IMAGE),
        ),
        "image_pad": OpSpec(
            args={
                "image": IMAGE,
                "left": INT,
                "top": INT,
                "right": INT,
                "bottom": INT,
                "feathering": INT,
            },
            outputs=ports(image=IMAGE, mask=MASK),
        ),
        "image_invert": OpSpec(args={"image": IMAGE}, outputs=ports(image=IMAGE)),
        "image_upscale": OpSpec(
            args={"image": IMAGE}, outputs=ports(image=IMAGE), role=Role.UPSCALER
        ),
        "image_size": OpSpec(
            args={"image": IMAGE}, outputs=ports(width=INT, height=INT, batch_size=INT)
        ),
        "empty_image": OpSpec(
            args={"width": INT, "height": INT, "batch_size": INT, "color": INT},
            outputs=ports(image=IMAGE),
        ),
        **CONDITIONINGS,
        **ENCODINGS,
        **IMAGES,
        **LATENTS,
        **TEXTS,
        **SAMPLING,
    }
)
