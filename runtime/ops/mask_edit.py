"""The bodies of nodes on masks ([B, H, W], 0 to 1) that need no model.

Source of rules and corner cases: ComfyUI 0.8.0's recorded outputs (`nodes.json` of the goldens).
"""

from __future__ import annotations

from typing import Final

import torch

from ..errors import NodeFailed
from ..values import Value
from .arguments import argument, image_argument, mask_argument, number
from .base import OpCall
from .each_call import each_call
from .image import limit_pictures
from .resample import crop_to_aspect, resample

CHANNELS: Final = ("red", "green", "blue", "alpha")


@each_call
def crop_mask(call: OpCall) -> tuple[Value, ...]:
    """mask, x, y, width, height -> MASK; it has no pixels where the place lies outside."""
    mask = mask_argument(call, "mask")
    x, y = argument(call, "x", int), argument(call, "y", int)
    right, below = x + argument(call, "width", int), y + argument(call, "height", int)
    return (mask[:, y:below, x:right].contiguous(),)


@each_call
def feather_mask(call: OpCall) -> tuple[Value, ...]:
    """mask, left, top, right, bottom -> MASK that fades in over so many pixels from each side.

    The last rows and columns are counted from -0: the weakest factor of right and bottom falls on
    the first column and row.
    """
    mask = mask_argument(call, "mask").clone()
    height, width = mask.shape[1:]
    for side, length, axis, sign in (
        ("left", width, 2, 1),
        ("right", width, 2, -1),
        ("top", height, 1, 1),
        ("bottom", height, 1, -1),
    ):
        size = min(argument(call, side, int), length)
        places = (torch.arange(size) * sign) % length
        factors = torch.ones(length)
        factors[places] = torch.arange(1, size + 1) / max(size, 1)
        mask *= factors[None, None, :] if axis == 2 else factors[None, :, None]
    return (mask,)


@each_call
def image_color_to_mask(call: OpCall) -> tuple[Value, ...]:
    """image, color (0xRRGGBB) -> MASK, 1 where a pixel is of that colour in 8 bits."""
    image = image_argument(call, "image")
    eight_bit = (image[..., :3].clamp(0, 1) * 255.0).round().to(torch.int)
    packed = (eight_bit * torch.tensor([1 << 16, 1 << 8, 1], dtype=torch.int)).sum(dim=-1)
    return ((packed == argument(call, "color", int)).to(torch.float32),)


@each_call
def image_to_mask(call: OpCall) -> tuple[Value, ...]:
    """image, channel -> MASK. Raises: NodeFailed: the picture has no such channel."""
    image, channel = image_argument(call, "image"), argument(call, "channel", str)
    index = CHANNELS.index(channel) if channel in CHANNELS else len(CHANNELS)
    if index >= image.shape[3]:
        raise NodeFailed(f"the picture has no channel {channel!r}", input="channel")
    return (image[..., index].contiguous(),)


@each_call
def invert_mask(call: OpCall) -> tuple[Value, ...]:
    """mask -> MASK, 1 - mask."""
    return (1.0 - argument(call, "mask", torch.Tensor),)


@each_call
def mask_to_image(call: OpCall) -> tuple[Value, ...]:
    """mask -> IMAGE, grey."""
    mask = mask_argument(call, "mask")
    limit_pictures(len(mask), mask.shape[1], mask.shape[2], 3)
    return (mask.unsqueeze(-1).expand(-1, -1, -1, 3).contiguous(),)


@each_call
def solid_mask(call: OpCall) -> tuple[Value, ...]:
    """value, width, height -> MASK [1, H, W] of one value."""
    height, width = argument(call, "height", int), argument(call, "width", int)
    limit_pictures(1, height, width, 1)
    return (torch.full((1, height, width), number(call, "value")),)


@each_call
def threshold_mask(call: OpCall) -> tuple[Value, ...]:
    """mask, value -> MASK, 1 where the mask is larger than `value`."""
    return ((mask_argument(call, "mask") > number(call, "value")).to(torch.float32),)


@each_call
def mask_composite(call: OpCall) -> tuple[Value, ...]:
    """destination, source, x, y, operation -> MASK: the source joined into a place of the other."""
    destination, source = mask_argument(call, "destination"), mask_argument(call, "source")
    x, y = argument(call, "x", int), argument(call, "y", int)
    height, width = destination.shape[1:]
    below, right = min(y + source.shape[1], height), min(x + source.shape[2], width)
    if x >= width or y >= height or len(source) not in (1, len(destination)):
        raise NodeFailed("the source doesn't meet the destination")
    joined = destination.clone()
    part, source = joined[:, y:below, x:right], source[:, : below - y, : right - x]
    joined[:, y:below, x:right] = _joined(part, source, argument(call, "operation", str))
    return (joined.clamp(0.0, 1.0),)


def _joined(part: torch.Tensor, source: torch.Tensor, operation: str) -> torch.Tensor:
    one, other = part.round().bool(), source.round().bool()
    match operation:
        case "multiply":
            return part * source
        case "add":
            return part + source
        case "subtract":
            return part - source
        case "and":
            return (one & other).to(torch.float32)
        case "or":
            return (one | other).to(torch.float32)
        case "xor":
            return (one ^ other).to(torch.float32)
    raise NodeFailed(f"unknown operation {operation!r}", input="operation")


@each_call
def split_image_with_alpha(call: OpCall) -> tuple[Value, ...]:
    """image -> IMAGE of three channels, MASK of what is transparent."""
    image = image_argument(call, "image")
    alpha = image[..., 3] if image.shape[3] > 3 else torch.ones(image.shape[:3])
    return (image[..., :3].contiguous(), 1.0 - alpha)


@each_call
def join_image_with_alpha(call: OpCall) -> tuple[Value, ...]:
    """image, alpha (1: transparent) -> IMAGE with four channels, as many as the shorter batch."""
    image, alpha = image_argument(call, "image"), mask_argument(call, "alpha")
    count = min(len(image), len(alpha))
    alpha = torch.nn.functional.interpolate(
        alpha[:count, None], size=image.shape[1:3], mode="bilinear"
    )
    opaque = 1.0 - alpha[:, 0, :, :, None]
    return (torch.cat((image[:count, ..., :3], opaque), dim=-1),)


@each_call
def batch_masks_node(call: OpCall) -> tuple[Value, ...]:
    """masks_0, masks_1 ... -> one MASK; all take the size of the first."""
    masks: list[torch.Tensor] = []
    while f"masks_{len(masks)}" in call.args:
        masks.append(mask_argument(call, f"masks_{len(masks)}"))
    if not masks:
        raise NodeFailed("there are no masks", input="masks")
    size = masks[0].shape[1:]
    limit_pictures(sum(map(len, masks)), size[0], size[1], 1)
    return (torch.cat([_fitted(mask, size) for mask in masks]),)


def _fitted(mask: torch.Tensor, size: torch.Size) -> torch.Tensor:
    if mask.shape[1:] == size:
        return mask
    cropped = crop_to_aspect(mask[:, None], size[1] / size[0])
    return resample(cropped, "bilinear", size[1], size[0])[:, 0]
