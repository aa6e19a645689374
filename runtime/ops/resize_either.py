"""The body that resizes pictures [B, H, W, C] or masks [B, H, W] in one of several ways.

Source of rules and corner cases: ComfyUI 0.8.0's recorded outputs (`nodes.json` of the goldens).
"""

from __future__ import annotations

import math

import torch

from ..errors import NodeFailed
from ..values import Value
from .arguments import argument, image_argument, mask_argument, number
from .base import OpCall
from .each_call import each_call
from .image import limit_pictures, scale
from .image_edit import MEGAPIXEL
from .resample import crop_to_aspect


@each_call
def resize_image_mask_node(call: OpCall) -> tuple[Value, ...]:
    """input, resize_type, scale_method and the numbers of that type -> IMAGE or MASK, as given."""
    is_mask = argument(call, "input", torch.Tensor).dim() < 4
    image = mask_argument(call, "input")[..., None] if is_mask else image_argument(call, "input")
    way = argument(call, "resize_type", str)
    width, height = _size(call, way, image.shape[2], image.shape[1])
    if (width, height) != (0, 0):
        limit_pictures(len(image), height, width, image.shape[3])
        if call.args.get("crop") == "center" and way in ("scale dimensions", "match size"):
            image = crop_to_aspect(image.movedim(-1, 1), width / height).movedim(1, -1)
        image = scale(image, argument(call, "scale_method", str), width, height)
    return (image.squeeze(-1) if is_mask else image,)


def _size(call: OpCall, way: str, width: int, height: int) -> tuple[int, int]:
    """New width and height; (0, 0) leaves the picture alone."""
    match way:
        case "scale by multiplier":
            factor = number(call, "multiplier")
            return round(width * factor), round(height * factor)
        case "scale total pixels":
            factor = math.sqrt(number(call, "megapixels") * MEGAPIXEL / (width * height))
            return round(width * factor), round(height * factor)
        case "match size":
            return _size_of(argument(call, "match", torch.Tensor))
        case "scale dimensions":
            given = argument(call, "width", int), argument(call, "height", int)
        case "scale width":
            given = argument(call, "width", int), 0
        case "scale height":
            given = 0, argument(call, "height", int)
        case "scale longer dimension":
            size = argument(call, "longer_size", int)
            given = (size, 0) if width > height else (0, size)
        case "scale shorter dimension":
            size = argument(call, "shorter_size", int)
            given = (size, 0) if width < height else (0, size)
        case _:
            raise NodeFailed(f"there is no way {way!r}", input="resize_type")
    return _in_proportion(given, width, height)


def _in_proportion(given: tuple[int, int], width: int, height: int) -> tuple[int, int]:
    """A side of 0 follows the other."""
    new_width, new_height = given
    if new_width == 0 and new_height > 0:
        new_width = max(1, round(width * new_height / height))
    elif new_height == 0 and new_width > 0:
        new_height = max(1, round(height * new_width / width))
    return new_width, new_height


def _size_of(match: torch.Tensor) -> tuple[int, int]:
    if match.dim() not in (3, 4):
        raise NodeFailed("match must be pictures or masks", input="match")
    return (match.shape[2], match.shape[1])
