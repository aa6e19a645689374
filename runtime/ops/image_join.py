"""The bodies of nodes that put two pictures together: side by side, or by their transparency.

Source of rules and corner cases: ComfyUI 0.8.0's recorded outputs (`nodes.json` of the goldens);
T. Porter, T. Duff, Compositing Digital Images, 1984.
"""

from __future__ import annotations

from typing import Final

import torch

from ..errors import NodeFailed
from ..values import Value
from .arguments import argument, image_argument, mask_argument
from .base import OpCall
from .each_call import each_call
from .image import limit_pictures, scale
from .resample import crop_to_aspect

COLOURS: Final = {
    "white": (1.0, 1.0, 1.0),
    "black": (0.0, 0.0, 0.0),
    "red": (1.0, 0.0, 0.0),
    "green": (0.0, 1.0, 0.0),
    "blue": (0.0, 0.0, 1.0),
}
TRANSPARENT: Final = 1e-5
ACROSS: Final = ("left", "right")
FIRST: Final = ("right", "down")  # the directions in which the first picture comes first


@each_call
def image_stitch(call: OpCall) -> tuple[Value, ...]:
    """image1, direction, match_image_size, spacing_width, spacing_color, image2? -> IMAGE.

    The spacing is rounded up to an even number. Pictures that are smaller and aren't resized lie
    in the middle of black; the shorter batch repeats its last picture.
    """
    first = image_argument(call, "image1")
    if "image2" not in call.args:
        return (first,)
    second, direction = image_argument(call, "image2"), argument(call, "direction", str)
    axis = 2 if direction in ACROSS else 1
    if argument(call, "match_image_size", bool):
        second = _matched(second, first, axis)
    channels = max(first.shape[3], second.shape[3])
    spacing = argument(call, "spacing_width", int)
    spacing += spacing % 2
    count = max(len(first), len(second))
    across = max(first.shape[3 - axis], second.shape[3 - axis])
    along = first.shape[axis] + spacing + second.shape[axis]
    limit_pictures(count, across, along, channels)
    parts = [_laid_out(part, count, across, 3 - axis, channels) for part in (first, second)]
    parts = parts if direction in FIRST else parts[::-1]
    if spacing:
        parts.insert(1, _strip(call, parts[0], axis, spacing))
    return (torch.cat(parts, dim=axis),)


def _matched(image: torch.Tensor, other: torch.Tensor, axis: int) -> torch.Tensor:
    """`image` with the side across `axis` of the other, in proportion."""
    height, width = image.shape[1:3]
    if axis == 2:
        new_height, new_width = other.shape[1], int(other.shape[1] * (width / height))
    else:
        new_height, new_width = int(other.shape[2] / (width / height)), other.shape[2]
    limit_pictures(len(image), new_height, new_width, image.shape[3])
    return scale(image, "lanczos", new_width, new_height)


def _laid_out(
    image: torch.Tensor, count: int, across: int, side: int, channels: int
) -> torch.Tensor:
    missing = count - len(image)
    image = torch.cat((image, image[-1:].expand(missing, -1, -1, -1))) if missing else image
    before = (across - image.shape[side]) // 2
    after = across - image.shape[side] - before
    borders = (0, 0, 0, 0, before, after) if side == 1 else (0, 0, before, after, 0, 0)
    image = torch.nn.functional.pad(image, borders)
    return torch.nn.functional.pad(image, (0, channels - image.shape[3]), value=1.0)


def _strip(call: OpCall, image: torch.Tensor, axis: int, spacing: int) -> torch.Tensor:
    colour = COLOURS.get(argument(call, "spacing_color", str))
    if colour is None:
        raise NodeFailed("unknown spacing_color", input="spacing_color")
    shape = list(image.shape)
    shape[axis] = spacing
    channels = (*colour, 1.0)[: shape[3]]
    return torch.tensor(channels).expand(shape)


@each_call
def porter_duff_image_composite(call: OpCall) -> tuple[Value, ...]:
    """source, source_alpha, destination, destination_alpha, mode -> IMAGE, MASK."""
    source, target = image_argument(call, "source"), image_argument(call, "destination")
    source_mask = mask_argument(call, "source_alpha")
    target_mask = mask_argument(call, "destination_alpha")
    if source.shape[3] != target.shape[3]:
        raise NodeFailed("source and destination differ in channels", input="source")
    count = min(map(len, (source, target, source_mask, target_mask)))
    size = target.shape[1:3]
    source, target = _sized(source[:count], size), target[:count]
    source_alpha = 1.0 - _sized(source_mask[:count, ..., None], size)
    target_alpha = 1.0 - _sized(target_mask[:count, ..., None], size)
    mode = argument(call, "mode", str)
    image, alpha = composite(
        source * source_alpha, source_alpha, target * target_alpha, target_alpha, mode
    )
    # What is premultiplied is divided again; where nothing is left the colour is black.
    plain = torch.where(alpha > TRANSPARENT, image / alpha.clamp(min=TRANSPARENT), 0.0)
    return (plain.clamp(0.0, 1.0), 1.0 - alpha[..., 0])


def _sized(x: torch.Tensor, size: torch.Size) -> torch.Tensor:
    if x.shape[1:3] == size:
        return x
    height, width = size
    cropped = crop_to_aspect(x.movedim(-1, 1), width / height).movedim(1, -1)
    return scale(cropped, "bicubic", width, height)


def composite(
    s: torch.Tensor, sa: torch.Tensor, d: torch.Tensor, da: torch.Tensor, mode: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Premultiplied colour and opacity of a source laid on a destination by a Porter-Duff operator.

    Raises: NodeFailed: unknown mode.
    """
    coverage = {
        "CLEAR": (torch.zeros_like(sa), torch.zeros_like(da)),
        "SRC": (torch.ones_like(sa), torch.zeros_like(da)),
        "DST": (torch.zeros_like(sa), torch.ones_like(da)),
        "SRC_OVER": (torch.ones_like(sa), 1.0 - sa),
        "DST_OVER": (1.0 - da, torch.ones_like(da)),
        "SRC_IN": (da, torch.zeros_like(da)),
        "DST_IN": (torch.zeros_like(sa), sa),
        "SRC_OUT": (1.0 - da, torch.zeros_like(da)),
        "DST_OUT": (torch.zeros_like(sa), 1.0 - sa),
        "SRC_ATOP": (da, 1.0 - sa),
        "DST_ATOP": (1.0 - da, sa),
        "XOR": (1.0 - da, 1.0 - sa),
    }
    if mode in coverage:
        of_source, of_target = coverage[mode]
        return s * of_source + d * of_target, sa * of_source + da * of_target
    union = sa + da - sa * da
    match mode:
        case "ADD":
            return (s + d).clamp(0.0, 1.0), (sa + da).clamp(0.0, 1.0)
        case "DARKEN":
            return (1.0 - da) * s + (1.0 - sa) * d + torch.minimum(s, d), union
        case "LIGHTEN":
            return (1.0 - da) * s + (1.0 - sa) * d + torch.maximum(s, d), union
        case "MULTIPLY":
            return s * d, sa * da
        case "SCREEN":
            return s + d - s * d, union
        case "OVERLAY":
            dark = 2.0 * s * d
            light = sa * da - 2.0 * (da - s) * (sa - d)
            return torch.where(2.0 * d < da, dark, light), union
    raise NodeFailed(f"unknown mode {mode!r}", input="mode")
