"""Flat morphology of pictures and masks: largest and smallest values of square neighbourhoods.

Pixels outside the picture count for nothing. Source: J. Serra, Image Analysis and Mathematical
Morphology, 1982; corner cases: ComfyUI 0.8.0's recorded outputs (`nodes.json` of the goldens).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..errors import NodeFailed
from ..values import Value
from .arguments import argument, image_argument, mask_argument
from .base import OpCall, OpContext, OpResult
from .each_call import each_call


@each_call
def morphology(call: OpCall) -> tuple[Value, ...]:
    """image, operation, kernel_size -> IMAGE."""
    image = image_argument(call, "image").movedim(-1, 1)
    changed = _changed(image, argument(call, "operation", str), argument(call, "kernel_size", int))
    return (changed.movedim(1, -1).contiguous(),)


def _changed(image: torch.Tensor, operation: str, size: int) -> torch.Tensor:
    match operation:
        case "erode":
            return erode(image, size)
        case "dilate":
            return dilate(image, size)
        case "open":
            return dilate(erode(image, size), size)
        case "close":
            return erode(dilate(image, size), size)
        case "gradient":
            return dilate(image, size) - erode(image, size)
        case "bottom_hat":
            return erode(dilate(image, size), size) - image
        case "top_hat":
            return image - dilate(erode(image, size), size)
    raise NodeFailed(f"unknown operation {operation!r}", input="operation")


def dilate(x: torch.Tensor, size: int) -> torch.Tensor:
    """The largest value of `size` x `size` pixels around each of [B, C, H, W].

    Of an even number more lie after the pixel than before it; an erosion's lie the other way.
    """
    return _largest(x, size, before=(size - 1) // 2)


def erode(x: torch.Tensor, size: int) -> torch.Tensor:
    """The smallest value of `size` x `size` pixels around each of [B, C, H, W]."""
    return -_largest(-x, size, before=size // 2)


def _largest(x: torch.Tensor, size: int, *, before: int) -> torch.Tensor:
    after = size - before - 1
    pool, pad = torch.nn.functional.max_pool2d, torch.nn.functional.pad
    across = pool(pad(x, (before, after, 0, 0), value=-math.inf), (1, size), stride=1)
    return pool(pad(across, (0, 0, before, after), value=-math.inf), (size, 1), stride=1)


def grow_mask(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """mask, expand, tapered_corners -> MASK grown by `expand` pixels, shrunk if it is negative.

    Each pixel takes the largest (smallest) of its 3 x 3 neighbours so many times; tapered, of
    those that share a side with it.
    """
    results = []
    for call in calls:
        mask, expand = mask_argument(call, "mask"), argument(call, "expand", int)
        grown = mask if expand > 0 else -mask
        is_tapered = argument(call, "tapered_corners", bool)
        for _ in range(abs(expand)):
            context.check_cancelled()
            before, grown = grown, _grown(grown, is_tapered=is_tapered)
            if torch.equal(before, grown):
                break
        results.append(OpResult(outputs=((grown if expand > 0 else -grown).contiguous(),)))
    return results


def _grown(mask: torch.Tensor, *, is_tapered: bool) -> torch.Tensor:
    pool = torch.nn.functional.max_pool2d
    if not is_tapered:
        return pool(mask, 3, stride=1, padding=1)
    across = pool(mask, (1, 3), stride=1, padding=(0, 1))
    return torch.maximum(across, pool(mask, (3, 1), stride=1, padding=(1, 0)))
