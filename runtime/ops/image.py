"""The bodies of nodes on pictures ([B, H, W, C], 0 to 1): load, scale, measure, make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from PIL import Image

from ...graph_import.handles import FileIdentity
from ..errors import NodeFailed, OutOfMemory
from ..models.weight_files import check_unchanged, problem
from .arguments import argument, image_argument
from .base import OpCall, OpContext, OpResult
from .picture_files import read_picture

MAX_RESULT_BYTES: Final = 4 << 30
MAX_SIDE: Final = 1 << 17
TORCH_METHODS: Final = frozenset({"nearest-exact", "bilinear", "area", "bicubic"})


def load_image(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """path, size_bytes, mtime_ns -> IMAGE and MASK (64 x 64 of zeros where there is no alpha).

    Raises: ModelFileProblem: outside the folders, changed, unreadable or too large.
    """
    roots = (context.folders.input, context.folders.output, context.folders.temp)
    results = []
    for call in calls:
        context.check_cancelled()
        file = FileIdentity(
            path=argument(call, "path", str),
            size_bytes=argument(call, "size_bytes", int),
            mtime_ns=argument(call, "mtime_ns", int),
        )
        if not any(Path(file.path).resolve().is_relative_to(root.resolve()) for root in roots):
            raise problem(file.path, "it lies in none of the folders for pictures")
        check_unchanged(file)
        picture = read_picture(Path(file.path), context.check_cancelled)
        results.append(OpResult(outputs=picture))
    return results


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
        _limit(len(image), new_height, new_width, image.shape[3])
        if argument(call, "crop", str) == "center":
            image = _crop_to_shape(image, new_width / new_height)
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
        _limit(count, height, width, 3)
        channels = [(color >> shift & 0xFF) / 255.0 for shift in (16, 8, 0)]
        image = torch.tensor(channels).expand(count, height, width, 3).contiguous()
        results.append(OpResult(outputs=(image,)))
    return results


def scale(image: torch.Tensor, method: str, width: int, height: int) -> torch.Tensor:
    """Resize pictures. Raises: NodeFailed: an unknown method.

    Lanczos goes through 8-bit pictures, so its results are multiples of 1/255; bicubic may leave
    0 to 1. Source: ComfyUI 0.8.0, `nodes.json` of the goldens.
    """
    if method == "lanczos":
        return _scale_lanczos(image, width, height)
    if method not in TORCH_METHODS:
        raise NodeFailed(f"unknown upscale_method {method!r}", input="upscale_method")
    moved = image.movedim(-1, 1)
    scaled = torch.nn.functional.interpolate(moved, size=(height, width), mode=method)
    return scaled.movedim(1, -1).contiguous()


def _scale_lanczos(image: torch.Tensor, width: int, height: int) -> torch.Tensor:
    pictures = []
    for pixels in image:
        eight_bit = (pixels.clamp(0.0, 1.0) * 255.0).to(torch.uint8).squeeze(-1).numpy()
        resized = Image.fromarray(eight_bit).resize((width, height), Image.Resampling.LANCZOS)
        pictures.append(torch.from_numpy(np.array(resized, dtype=np.float32) / np.float32(255.0)))
    return torch.stack(pictures).reshape(len(image), height, width, image.shape[3])


def _crop_to_shape(image: torch.Tensor, aspect: float) -> torch.Tensor:
    """Cut equal borders off two sides, so that width / height comes near `aspect`."""
    height, width = image.shape[1:3]
    if width / height > aspect:
        border = round((width - height * aspect) / 2)
        return image.narrow(2, border, max(1, width - 2 * border))
    border = round((height - width / aspect) / 2)
    return image.narrow(1, border, max(1, height - 2 * border))


def _limit(count: int, height: int, width: int, channels: int) -> None:
    """Raises: NodeFailed: no picture at all. OutOfMemory: larger than any picture may be."""
    if min(count, height, width) < 1 or max(height, width) > MAX_SIDE:
        raise NodeFailed(f"{count} pictures of {width} x {height} pixels can't be made")
    if count * height * width * channels * 4 > MAX_RESULT_BYTES:
        raise OutOfMemory(
            f"{count} pictures of {width} x {height} pixels are more than "
            f"{MAX_RESULT_BYTES >> 30} GB",
            limit_bytes=MAX_RESULT_BYTES,
        )
