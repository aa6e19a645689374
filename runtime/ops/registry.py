"""Which function is the body of an op. A family's module is imported when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, cast

from ...graph_import.nodes import ops_conditioning, ops_latents
from ...graph_import.text_functions import FUNCTIONS
from ..errors import NodeFailed
from .base import OpBody
from .image_modules import MODULES as IMAGES

PROPERTIES: Final = (
    "cond_hooks",
    "conditioning_set_area_percentage_video",
    "conditioning_set_area_strength",
    "conditioning_set_default",
    "conditioning_set_properties",
    "timesteps_ranges",
)
_MODULES: Final[Mapping[str, str]] = {
    "text_encode": "text",
    "text_encode_each": "text",
    "conditioning_combine": "conditioning",
    "conditioning_average": "conditioning",
    "conditioning_concat": "conditioning",
    "conditioning_set_area": "conditioning",
    "conditioning_set_area_percentage": "conditioning",
    "conditioning_set_mask": "conditioning",
    "conditioning_set_timestep_range": "conditioning",
    "conditioning_zero_out": "conditioning",
    **dict.fromkeys(ops_conditioning.TABLE, "conditioning_details"),
    **dict.fromkeys(PROPERTIES, "conditioning_properties"),
    "denoise_hooked": "hooked",
    "cond_control": "controlnet",
    "controlnet": "controlnet",
    "encode_hint": "controlnet",
    "set_noise_mask": "inpaint",
    "vae_encode_inpaint": "inpaint",
    "inpaint_conditioning": "inpaint",
    "empty_latent": "sampling",
    "sample_begin": "sampling",
    "denoise": "sampling",
    "sample_adaptive": "adaptive",
    "sample_end": "sampling",
    "vae_decode": "latent",
    "vae_encode": "latent",
    "vae_decode_tiled": "tiled",
    "vae_encode_tiled": "tiled",
    "latent_upscale": "latent_edit",
    "latent_upscale_by": "latent_edit",
    "latent_composite": "latent_edit",
    "latent_repeat": "latent_edit",
    "latent_batch": "latent_edit",
    "latent_from_batch": "latent_edit",
    "load_image": "image",
    "load_image_mask": "image",
    "image_scale": "image",
    "image_scale_by": "image_edit",
    "image_scale_to_total_pixels": "image_edit",
    "image_invert": "image_edit",
    "image_pad": "image_edit",
    "image_upscale": "tiled",
    "image_size": "image",
    "empty_image": "image",
    "save_image": "output",
    **dict.fromkeys(("save_animated_webp", "save_animated_png"), "animation"),
    "patch_fetch": "patches",
    "patch_trigger": "async_lora",
    "patch_check": "async_lora",
    "latents_lookup": "approx_cache",
    "latents_resume": "approx_cache",
    "latents_store": "approx_cache",
    "user_model": "user_model",
    **dict.fromkeys(("add_noise", "sample_denoised", "latent_operation"), "custom_sampling"),
    "list_item": "texts",
    **{f"text_{name}": "texts" for name in FUNCTIONS},
    **dict.fromkeys(("regex_match", "regex_extract", "regex_replace"), "regexes"),
    **dict.fromkeys(ops_latents.TABLE, "latents"),
    **dict.fromkeys(("av_latent_join", "av_latent_separate"), "av_latents"),
    **IMAGES,
}

OPS: Final = frozenset(_MODULES)


def body(op: str) -> OpBody:
    """The body of `op`. Raises: NodeFailed: this build has no such op."""
    module = _MODULES.get(op)
    if module is None:
        raise NodeFailed(f"this executor knows no op {op!r}", op=op)
    return cast(OpBody, getattr(import_module(f".{module}", __package__), op))
