"""The bodies that leave few colours in pictures, or fit them to what Flux Kontext was trained on.

Source of rules and corner cases: ComfyUI 0.8.0's recorded outputs (`nodes.json` of the goldens).
"""

from __future__ import annotations

from typing import Final

import torch
from PIL import Image

from ..errors import NodeFailed
from ..values import Value
from .arguments import argument, image_argument
from .base import OpCall
from .each_call import each_call
from .image_dataset import to_pillow, to_tensor

SPREAD: Final = 512.0  # twice the 8-bit values that one of `colors` stands for
PLAIN_DITHERS: Final = {"none": Image.Dither.NONE, "floyd-steinberg": Image.Dither.FLOYDSTEINBERG}


@each_call
def image_quantize(call: OpCall) -> tuple[Value, ...]:
    """image, colors, dither -> IMAGE of at most so many colours in each picture."""
    image, dither = image_argument(call, "image"), argument(call, "dither", str)
    colors = argument(call, "colors", int)
    pictures = [_quantized(to_pillow(one[..., :3]).convert("RGB"), colors, dither) for one in image]
    return (torch.stack([to_tensor(picture) for picture in pictures]),)


def _quantized(picture: Image.Image, colors: int, dither: str) -> Image.Image:
    palette = picture.quantize(colors)
    if dither in PLAIN_DITHERS:
        chosen = picture.quantize(colors, palette=palette, dither=PLAIN_DITHERS[dither])
        return chosen.convert("RGB")
    name, _, order = dither.partition("-")
    if name != "bayer" or not order.isdecimal():
        raise NodeFailed(f"unknown dither {dither!r}", input="dither")
    return _ordered(picture, palette, colors, int(order)).convert("RGB")


def _ordered(picture: Image.Image, palette: Image.Image, colors: int, order: int) -> Image.Image:
    """Dithered by Bayer's matrix of `order` x `order` (B. E. Bayer, 1973)."""
    pixels = to_tensor(picture) * 255.0
    spread = SPREAD / colors
    height, width = pixels.shape[:2]
    matrix = bayer_matrix(order)
    tiled = matrix.repeat(-(-height // order), -(-width // order))[:height, :width]
    shifted = (pixels + spread * tiled[..., None]).clamp(0.0, 255.0).round().to(torch.uint8)
    moved = Image.fromarray(shifted.numpy())
    return moved.quantize(palette=palette, dither=Image.Dither.NONE)


def bayer_matrix(order: int) -> torch.Tensor:
    """[order, order] of thresholds between -1/2 and 1/2, of mean 0; `order`: a power of 2."""
    matrix = torch.zeros(1, 1)
    while len(matrix) < order:
        top = torch.cat((4 * matrix, 4 * matrix + 2), dim=1)
        bottom = torch.cat((4 * matrix + 3, 4 * matrix + 1), dim=1)
        matrix = torch.cat((top, bottom))
    return (matrix + 0.5) / (order * order) - 0.5
