"""Small pictures of a run under way, from the denoised latents by a linear map."""

from __future__ import annotations

import io
from typing import Final

import torch
from PIL import Image, ImageOps

from ...graph_import.families import Family

PREVIEW_METHODS: Final = frozenset({"latent2rgb", "auto", "taesd"})  # all give the linear map
JPEG_QUALITY: Final = 95


def preview_jpeg(denoised: torch.Tensor, family: Family, preview_size: int) -> bytes:
    """JPEG of the first image of `denoised` [B, C, h, w] (the denoiser's space).

    It is scaled up or down, keeping its sides' ratio, until it fills a square of `preview_size`
    pixels in one direction.
    """
    factors = torch.tensor(family.latent_rgb_factors, dtype=torch.float32)
    bias = torch.tensor(family.latent_rgb_bias, dtype=torch.float32)
    first = denoised[0].to("cpu", torch.float32).movedim(0, -1)
    colours = ((first @ factors + bias + 1.0) / 2.0).nan_to_num(0.0).clamp(0.0, 1.0)
    picture = Image.fromarray((colours * 255.0).to(torch.uint8).numpy())
    fitted = ImageOps.contain(picture, (preview_size, preview_size), Image.Resampling.BILINEAR)
    out = io.BytesIO()
    fitted.save(out, format="JPEG", quality=JPEG_QUALITY)
    return out.getvalue()
