"""The bodies of nodes on pictures ([B, H, W, C], 0 to 1): load, scale, measure, make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from ...graph_import.handles import FileIdentity
from ..errors import NodeFailed, OutOfMemory
from ..models.weight_files import check_unchanged, problem
from .arguments import argument, image_argument
from .base import OpCall, OpContext, OpResult
from .picture_files import read_mask, read_picture
from .resample import crop_to_aspect, resample

MAX_RESULT_BYTES: Final = 4 << 30
MAX_SIDE: Final = 1 << 17


def load_image(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """path, size_bytes, mtime_ns -> IMAGE and MASK (64 x 64 of zeros where there is no alpha).

    Raises: ModelFileProblem: outside the folders, changed, unreadable or too large.
    """
    results = []
    for call in calls:
        path = _picture_path(context, call)
        results.append(OpResult(outputs=read_picture(path, context.check_cancelled)))
    return results


def load_image_mask(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """path, size_bytes, mtime_ns, channel -> MASK [1, H, W] of that channel; alpha is inverted.

    Raises: ModelFileProblem, as `load_image`.
    """
    results = []
    for call in calls:
        path = _picture_path(context, call)
        results.append(OpResult(outputs=(read_mask(path, argument(call, "channel", str)),)))
    return results


def _picture_path(context: OpContext, call: OpCall) -> Path:
    """The picture that the arguments name, as it was when the request was accepted."""
    context.check_cancelled()
    file = FileIdentity(
        path=argument(call, "path", str),
        size_bytes=argument(call, "size_bytes", int),
        mtime_ns=argument(call, "mtime_ns", int),
    )
    roots = (context.folders.input, context.folders.output, context.folders.temp)
    if not any(Path(file.path).resolve().is_relative_to(root.resolve()) for root in roots):
        raise problem(file.path, "it lies in none of the folders for pictures")
    check_unchanged(file)
    return Path(file.path)


def image_scale(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """image, upscale_method, width, height, crop -> IMAGE. A side of 0 keeps the proportions."""
    results = []
    for call in calls:
        context.check_cancelled()
        image = image_argument(call, "image")
        height, width = image.shape[1:3]
        new_width, new_height = argument(call, "width", int), argument(call, "height", int)
        if new_width == 0 and new_height == 0:
            results.append(OpResult(outputs=(image,)))
            continue
        new_width = new_width or max(1, round(width * new_height / height))
        new_height = new_height or max(1, round(height * new_width / width))
        limit_pictures(len(image), new_height, new_width, image.shape[3])
        if argument(call, "crop", str) == "center":
            image = crop_to_aspect(image.movedim(-1, 1), new_width / new_height).movedim(1, -1)
        scaled = scale(image, argument(call, "upscale_method", str), new_width, new_height)
        results.append(OpResult(outputs=(scaled,)))
    return results


def image_size(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """image -> width, height and number of pictures."""
    results = []
    for call in calls:
        count, height, width, _ = image_argument(call, "image").shape
        results.append(OpResult(outputs=(width, height, count)))
    return results


def empty_image(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """width, height, batch_size, color (0xRRGGBB) -> IMAGE of that colour."""
    results = []
    for call in calls:
        count, color = argument(call, "batch_size", int), argument(call, "color", int)
        height, width = argument(call, "height", int), argument(call, "width", int)
        limit_pictures(count, height, width, 3)
        channels = [(color >> shift & 0xFF) / 255.0 for shift in (16, 8, 0)]
        image = torch.tensor(channels).expand(count, height, width, 3).contiguous()
        results.append(OpResult(outputs=(image,)))
    return results


def scale(image: torch.Tensor, method: str, width: int, height: int) -> torch.Tensor:
    """Resize pictures. Raises: NodeFailed: an unknown method, or one for latents alone."""
    if method == "bislerp":
        raise NodeFailed(f"unknown upscale_method {method!r}", input="upscale_method")
    scaled = resample(image.movedim(-1, 1), method, width, height)
    return scaled.movedim(1, -1).contiguous()


def limit_pictures(count: int, height: int, width: int, channels: int) -> None:
    """Raises: NodeFailed: no picture at all. OutOfMemory: larger than any picture may be."""
    if min(count, height, width) < 1 or max(height, width) > MAX_SIDE:
        raise NodeFailed(f"{count} pictures of {width} x {height} pixels can't be made")
    if count * height * width * channels * 4 > MAX_RESULT_BYTES:
        raise OutOfMemory(
            f"{count} pictures of {width} x {height} pixels are more than "
            f"{MAX_RESULT_BYTES >> 30} GB",
            limit_bytes=MAX_RESULT_BYTES,
        )
