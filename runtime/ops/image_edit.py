"""The bodies of nodes that change pictures ([B, H, W, C], 0 to 1): scale, pad, invert."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch

from .arguments import argument, image_argument
from .base import OpCall, OpContext, OpResult
from .image import limit_pictures, scale

MEGAPIXEL: Final = 1024 * 1024
PADDING: Final = 0.5  # grey


def image_scale_by(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """image, upscale_method, scale_by -> IMAGE."""
    results = []
    for call in calls:
        context.check_cancelled()
        image, factor = image_argument(call, "image"), argument(call, "scale_by", float)
        height, width = (round(side * factor) for side in image.shape[1:3])
        results.append(_scaled(call, image, width, height))
    return results


def image_scale_to_total_pixels(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """image, upscale_method, megapixels, resolution_steps -> IMAGE of about that many pixels.

    The sides keep their ratio, but are multiples of `resolution_steps`.
    """
    results = []
    for call in calls:
        context.check_cancelled()
        image, step = image_argument(call, "image"), argument(call, "resolution_steps", int)
        height, width = image.shape[1:3]
        factor = math.sqrt(argument(call, "megapixels", float) * MEGAPIXEL / (width * height))
        new_height, new_width = (round(side * factor / step) * step for side in (height, width))
        results.append(_scaled(call, image, new_width, new_height))
    return results


def image_invert(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """image -> IMAGE, 1 - image."""
    return [OpResult(outputs=(1.0 - image_argument(call, "image"),)) for call in calls]


def image_pad(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """image, left, top, right, bottom, feathering -> IMAGE with grey borders, MASK of them.

    The mask [1, H, W] is 1 on the borders and falls to 0 over `feathering` pixels inside the
    picture, as the square of the distance; in a picture too small for that it doesn't.
    """
    results = []
    for call in calls:
        context.check_cancelled()
        image = image_argument(call, "image")
        left, top, right, bottom = (
            argument(call, side, int) for side in ("left", "top", "right", "bottom")
        )
        count, height, width, channels = image.shape
        limit_pictures(count, height + top + bottom, width + left + right, channels)
        rows, columns = slice(top, top + height), slice(left, left + width)
        padded = torch.full((count, top + height + bottom, left + width + right, channels), PADDING)
        padded[:, rows, columns] = image
        mask = torch.ones(1, *padded.shape[1:3])
        feathering = argument(call, "feathering", int)
        down = _distances(height, is_before=top > 0, is_after=bottom > 0)
        across = _distances(width, is_before=left > 0, is_after=right > 0)
        if 0 < feathering < min(height, width) / 2:
            nearest = torch.minimum(down[:, None], across[None, :])
            mask[0, rows, columns] = (1.0 - nearest / feathering).clamp(min=0.0).square()
        else:
            mask[0, rows, columns] = 0.0
        results.append(OpResult(outputs=(padded, mask)))
    return results


def _distances(length: int, *, is_before: bool, is_after: bool) -> torch.Tensor:
    """From each place of a side to the nearer of its padded ends; far where none is padded."""
    places = torch.arange(length, dtype=torch.float32)
    far = torch.full((length,), math.inf)
    return torch.minimum(places if is_before else far, length - places if is_after else far)


def _scaled(call: OpCall, image: torch.Tensor, width: int, height: int) -> OpResult:
    limit_pictures(len(image), height, width, image.shape[3])
    method = argument(call, "upscale_method", str)
    return OpResult(outputs=(scale(image, method, width, height),))
