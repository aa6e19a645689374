"""The bodies of nodes that run a model over tiles of a picture or a latent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from ...graph_import.model import Model
from ..errors import NodeFailed
from ..values import LATENT_PIXELS, Latent
from .arguments import argument, image_argument, loaded
from .base import OpCall, OpContext, OpResult
from .image import limit_pictures
from .tiles import Tiling, run_tiled

UPSCALER_TILING: Final = Tiling(side=512, overlap=32)
MIN_UPSCALER_SIDE: Final = 128  # with less memory than for this an upscaler can't run


def vae_decode_tiled(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """samples, tile_size, overlap (pixels) -> IMAGE."""
    model = loaded(context)
    results = []
    for call in calls:
        tiling = _vae_tiling(call, source_scale=1)
        images = [
            run_tiled(
                one,
                lambda tile: _made(model, "samples", tile, "image").movedim(-1, 1),
                tiling,
                context.check_cancelled,
            )
            for one in torch.split(argument(call, "samples", Latent).samples, 1)
        ]
        results.append(OpResult(outputs=(torch.cat(images).movedim(1, -1).contiguous(),)))
    return results


def vae_encode_tiled(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """pixels, tile_size, overlap -> LATENT. Sides are cropped to a multiple of 8, as untiled."""
    model = loaded(context)
    results = []
    for call in calls:
        tiling = _vae_tiling(call, source_scale=LATENT_PIXELS)
        pixels = _cropped(image_argument(call, "pixels")).movedim(-1, 1)
        latents = [
            run_tiled(
                one,
                lambda tile: _made(model, "pixels", tile.movedim(1, -1), "latent"),
                tiling,
                context.check_cancelled,
            )
            for one in torch.split(pixels, 1)
        ]
        results.append(OpResult(outputs=(Latent(samples=torch.cat(latents)),)))
    return results


def image_upscale(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """image -> IMAGE, larger, 0 to 1. Alpha is left out.

    Where a device's memory doesn't hold a tile, smaller ones are tried.
    """
    model = loaded(context)
    results = []
    for call in calls:
        pictures = image_argument(call, "image")[..., :3].movedim(-1, 1)
        upscaled = [_upscaled(context, model, one) for one in torch.split(pictures, 1)]
        images = torch.cat(upscaled).clamp_(0.0, 1.0).movedim(1, -1).contiguous()
        results.append(OpResult(outputs=(images,)))
    return results


def _upscaled(context: OpContext, model: Model, picture: torch.Tensor) -> torch.Tensor:
    side = UPSCALER_TILING.side

    def run(tile: torch.Tensor) -> torch.Tensor:
        made = _made(model, "image", tile, "image")
        limit_pictures(1, *(_grown(picture, tile, made)), made.shape[1])
        return made

    while True:
        try:
            tiling = Tiling(side=side, overlap=UPSCALER_TILING.overlap)
            return run_tiled(picture, run, tiling, context.check_cancelled)
        except torch.OutOfMemoryError:
            side //= 2
            if side < MIN_UPSCALER_SIDE:
                raise


def _grown(picture: torch.Tensor, tile: torch.Tensor, made: torch.Tensor) -> tuple[int, int]:
    """Height and width that the whole picture comes to, going by one tile."""
    factor = made.shape[-1] / tile.shape[-1]
    return int(picture.shape[-2] * factor), int(picture.shape[-1] * factor)


def _vae_tiling(call: OpCall, source_scale: int) -> Tiling:
    side = argument(call, "tile_size", int) // LATENT_PIXELS
    if side < 1:
        raise NodeFailed(f"a tile needs {LATENT_PIXELS} pixels at least", input="tile_size")
    overlap = argument(call, "overlap", int) // LATENT_PIXELS
    return Tiling(side=side, overlap=max(0, min(overlap, side // 4)), source_scale=source_scale)


def _cropped(pixels: torch.Tensor) -> torch.Tensor:
    """Equal borders cut off, so that the sides are whole cells; too small a picture stays."""
    for dim in (1, 2):
        size = pixels.shape[dim]
        kept = size // LATENT_PIXELS * LATENT_PIXELS
        if kept:
            pixels = pixels.narrow(dim, (size - kept) // 2, kept)
    return pixels


def _made(model: Model, given: str, tensor: torch.Tensor, wanted: str) -> torch.Tensor:
    made = model.execute(**{given: tensor})[wanted]
    if not isinstance(made, torch.Tensor):
        raise NodeFailed(f"the model gave no {wanted}")
    return made
