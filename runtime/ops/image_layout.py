"""The bodies of nodes that crop, turn, join and resize pictures ([B, H, W, C]).

Source of rules and corner cases: ComfyUI 0.8.0's recorded outputs (`nodes.json` of the goldens).
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

# (width, height) pairs that FLUX.1 Kontext was trained on, and the same turned.
# Source: diffusers, pipeline_flux_kontext.PREFERRED_KONTEXT_RESOLUTIONS.
_TALL: Final = (
    (672, 1568), (688, 1504), (720, 1456), (752, 1392), (800, 1328), (832, 1248), (880, 1184),
    (944, 1104), (1024, 1024),
)  # fmt: skip
KONTEXT_SIZES: Final = (*_TALL, *((high, wide) for wide, high in reversed(_TALL[:-1])))
QUARTER_TURNS: Final = {"none": 0, "90 degrees": 3, "180 degrees": 2, "270 degrees": 1}


@each_call
def image_crop(call: OpCall) -> tuple[Value, ...]:
    """image, width, height, x, y -> IMAGE; a place outside is moved onto the last pixel."""
    image = image_argument(call, "image")
    x = min(argument(call, "x", int), image.shape[2] - 1)
    y = min(argument(call, "y", int), image.shape[1] - 1)
    below, right = y + argument(call, "height", int), x + argument(call, "width", int)
    return (image[:, y:below, x:right].contiguous(),)


@each_call
def image_flip(call: OpCall) -> tuple[Value, ...]:
    """image, flip_method -> IMAGE."""
    axis = 1 if argument(call, "flip_method", str).startswith("x") else 2
    return (image_argument(call, "image").flip(axis),)


@each_call
def image_rotate(call: OpCall) -> tuple[Value, ...]:
    """image, rotation (clockwise) -> IMAGE."""
    turns = QUARTER_TURNS.get(argument(call, "rotation", str))
    if turns is None:
        raise NodeFailed("unknown rotation", input="rotation")
    return (image_argument(call, "image").rot90(turns, (1, 2)).contiguous(),)


@each_call
def image_from_batch(call: OpCall) -> tuple[Value, ...]:
    """image, batch_index, length -> IMAGE; an index past the end is the last picture."""
    image = image_argument(call, "image")
    first = min(argument(call, "batch_index", int), len(image) - 1)
    return (image[first : first + argument(call, "length", int)].clone(),)


@each_call
def repeat_image_batch(call: OpCall) -> tuple[Value, ...]:
    """image, amount -> IMAGE, the batch so many times in a row."""
    image, amount = image_argument(call, "image"), argument(call, "amount", int)
    limit_pictures(len(image) * amount, image.shape[1], image.shape[2], image.shape[3])
    return (image.repeat(amount, 1, 1, 1),)


@each_call
def image_scale_to_max_dimension(call: OpCall) -> tuple[Value, ...]:
    """image, upscale_method, largest_size -> IMAGE whose longer side is `largest_size`."""
    image, size = image_argument(call, "image"), argument(call, "largest_size", int)
    height, width = image.shape[1:3]
    if height > width:
        width, height = round(width / height * size), size
    else:
        width, height = size, round(height / width * size)
    limit_pictures(len(image), height, width, image.shape[3])
    return (scale(image, argument(call, "upscale_method", str), width, height),)


@each_call
def image_batch(call: OpCall) -> tuple[Value, ...]:
    """image1, image2 -> one IMAGE of the size of the first."""
    return (_batched([image_argument(call, name) for name in ("image1", "image2")]),)


@each_call
def batch_images_node(call: OpCall) -> tuple[Value, ...]:
    """images_0, images_1 ... -> one IMAGE of the size of the first."""
    images: list[torch.Tensor] = []
    while f"images_{len(images)}" in call.args:
        images.append(image_argument(call, f"images_{len(images)}"))
    if not images:
        raise NodeFailed("there are no images", input="images")
    return (_batched(images),)


def _batched(images: list[torch.Tensor]) -> torch.Tensor:
    """Missing channels are 1."""
    channels = max(image.shape[3] for image in images)
    height, width = images[0].shape[1:3]
    limit_pictures(sum(map(len, images)), height, width, channels)
    fitted = []
    for image in images:
        padded = torch.nn.functional.pad(image, (0, channels - image.shape[3]), value=1.0)
        if image.shape[1:3] != images[0].shape[1:3]:
            cropped = crop_to_aspect(padded.movedim(-1, 1), width / height).movedim(1, -1)
            padded = scale(cropped, "bilinear", width, height)
        fitted.append(padded)
    return torch.cat(fitted)


@each_call
def resize_and_pad_image(call: OpCall) -> tuple[Value, ...]:
    """image, target_width, target_height, padding_color, interpolation -> IMAGE inside borders."""
    image = image_argument(call, "image")
    wide, high = argument(call, "target_width", int), argument(call, "target_height", int)
    height, width = image.shape[1:3]
    factor = min(wide / width, high / height)
    new_width, new_height = int(width * factor), int(height * factor)
    limit_pictures(len(image), min(high, new_height), min(wide, new_width), image.shape[3])
    limit_pictures(len(image), high, wide, image.shape[3])
    scaled = scale(image, argument(call, "interpolation", str), new_width, new_height)
    colour = 0.0 if argument(call, "padding_color", str) == "black" else 1.0
    padded = torch.full((len(image), high, wide, image.shape[3]), colour)
    top, left = (high - new_height) // 2, (wide - new_width) // 2
    padded[:, top : top + new_height, left : left + new_width] = scaled
    return (padded,)


@each_call
def image_composite_masked(call: OpCall) -> tuple[Value, ...]:
    """destination, source, x, y, resize_source, mask? -> IMAGE: the source laid on a place."""
    destination, source = image_argument(call, "destination"), image_argument(call, "source")
    height, width, channels = destination.shape[1:]
    if source.shape[3] < channels:
        raise NodeFailed("the source has fewer channels than the destination", input="source")
    source = source[..., :channels]
    if argument(call, "resize_source", bool):
        source = scale(source, "bilinear", width, height)
    if len(source) != len(destination):
        source = source.repeat(-(-len(destination) // len(source)), 1, 1, 1)[: len(destination)]
    x, y = argument(call, "x", int), argument(call, "y", int)
    below, right = min(y + source.shape[1], height), min(x + source.shape[2], width)
    if x >= width or y >= height:
        return (destination,)
    share = torch.ones(1, *source.shape[1:3], 1)
    if "mask" in call.args:
        mask = mask_argument(call, "mask")[..., None]
        share = scale(mask, "bilinear", source.shape[2], source.shape[1])
        share = share.repeat(-(-len(destination) // len(share)), 1, 1, 1)[: len(destination)]
    laid = destination.clone()
    share, source = (part[:, : below - y, : right - x] for part in (share, source))
    place = laid[:, y:below, x:right]
    laid[:, y:below, x:right] = source * share + place * (1.0 - share)
    return (laid,)


@each_call
def flux_kontext_image_scale(call: OpCall) -> tuple[Value, ...]:
    """image -> IMAGE, cut and scaled to the size of nearest aspect that FLUX.1 Kontext knows."""
    image = image_argument(call, "image")
    aspect = image.shape[2] / image.shape[1]
    width, height = min(KONTEXT_SIZES, key=lambda size: abs(aspect - size[0] / size[1]))
    limit_pictures(len(image), height, width, image.shape[3])
    cropped = crop_to_aspect(image.movedim(-1, 1), width / height).movedim(1, -1)
    return (scale(cropped, "lanczos", width, height),)
