"""The table of classes that put something on the entries of a conditioning, by one op each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..types import CONDITIONING, IMAGE, LATENT
from .plain import PlainNode, plain
from .schema import InputSpec, NodeSchema, choice, number, ports, socket

REFERENCE_METHODS: Final = ("offset", "index", "uxo/uno", "index_timestep_zero")
TIMESTEPS_RANGE: Final = "TIMESTEPS_RANGE"  # a pair of FLOATs: from the first to the second
_OUT: Final[Mapping[str, str]] = {"CONDITIONING": CONDITIONING}
_ENTRIES: Final = socket("conditioning", CONDITIONING)
_SIDES: Final = (socket("positive", CONDITIONING), socket("negative", CONDITIONING))
_TWO_OUT: Final = {"positive": CONDITIONING, "negative": CONDITIONING}


def _old(class_type: str, module: str, *inputs: InputSpec) -> PlainNode:
    entries = socket("conditioning", CONDITIONING, is_bare=True)
    schema = NodeSchema(
        class_type=class_type,
        display_name=class_type,
        category="conditioning",
        python_module=module,
        inputs=(entries, *inputs, number("strength", default=1.0, min=0.0, max=10.0, step=0.01)),
        outputs=ports(**_OUT),
    )
    return plain(schema)


def _new(
    class_type: str,
    module: str,
    category: str,
    op: str,
    *inputs: InputSpec,
    outputs: Mapping[str, str] = _OUT,
    title: str | None = None,
    is_experimental: bool = False,
) -> PlainNode:
    schema = NodeSchema(
        class_type=class_type,
        display_name=title,
        category=category,
        python_module=f"comfy_extras.nodes_{module}",
        inputs=inputs,
        outputs=ports(**outputs),
        is_v3=True,
        is_experimental=is_experimental,
    )
    return plain(schema, op)


def _share(name: str, default: float) -> InputSpec:
    return number(name, default=default, min=0, max=1.0, step=0.01)


ROWS: Final[tuple[PlainNode, ...]] = (
    _old("ConditioningSetAreaStrength", "nodes"),
    _old(
        "ConditioningSetAreaPercentageVideo",
        "comfy_extras.nodes_video_model",
        *(_share(name, 1.0) for name in ("width", "height", "temporal")),
        *(_share(name, 0) for name in ("x", "y", "z")),
    ),
    _new(
        "FluxGuidance",
        "flux",
        "advanced/conditioning/flux",
        "conditioning_guidance",
        _ENTRIES,
        number("guidance", default=3.5, min=0.0, max=100.0, step=0.1),
    ),
    _new(
        "FluxDisableGuidance",
        "flux",
        "advanced/conditioning/flux",
        "conditioning_no_guidance",
        _ENTRIES,
    ),
    _new(
        "FluxKontextMultiReferenceLatentMethod",
        "flux",
        "advanced/conditioning/flux",
        "conditioning_reference_method",
        _ENTRIES,
        choice("reference_latents_method", REFERENCE_METHODS),
        title="Edit Model Reference Method",
        is_experimental=True,
    ),
    _new(
        "ReferenceLatent",
        "edit_model",
        "advanced/conditioning/edit_models",
        "conditioning_reference_latent",
        _ENTRIES,
        InputSpec(name="latent", type=LATENT, options={}, is_required=False),
    ),
    _new(
        "StableCascade_StageB_Conditioning",
        "stable_cascade",
        "conditioning/stable_cascade",
        "conditioning_cascade_prior",
        _ENTRIES,
        socket("stage_c", LATENT),
    ),
    _new(
        "LTXVConditioning",
        "lt",
        "conditioning/video_models",
        "conditioning_frame_rate",
        *_SIDES,
        number("frame_rate", default=25.0, min=0.0, max=1000.0, step=0.01),
        outputs=_TWO_OUT,
    ),
    _new(
        "HunyuanRefinerLatent",
        "hunyuan",
        "sd",
        "conditioning_refiner_latent",
        *_SIDES,
        socket("latent", LATENT),
        number("noise_augmentation", default=0.1, min=0.0, max=1.0, step=0.01),
        outputs={**_TWO_OUT, "latent": LATENT},
    ),
    _new(
        "SD_4XUpscale_Conditioning",
        "sdupscale",
        "conditioning/upscale_diffusion",
        "conditioning_upscale_picture",
        socket("images", IMAGE),
        *_SIDES,
        number("scale_ratio", default=4.0, min=0.0, max=10.0, step=0.01),
        number("noise_augmentation", default=0.0, min=0.0, max=1.0, step=0.001),
        outputs={**_TWO_OUT, "latent": LATENT},
    ),
)
