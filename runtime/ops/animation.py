"""The bodies of nodes that save pictures as one animated file.

Where a file tells of its request: spec importer-rules.md, section 13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any, Final, TypeVar

import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ..errors import NodeFailed
from .arguments import argument, image_argument, number
from .base import OpCall, OpContext, OpResult
from .output import eight_bit, pattern_for, publish, texts_of

T = TypeVar("T", int, float)
METHODS: Final[Mapping[str, int]] = {"default": 4, "fastest": 0, "slowest": 6}
EXIF_MODEL: Final = 0x0110  # holds the prompt; further texts go into the tags below it
MAX_WEBP_SIDE: Final = 16_383
MAX_WEBP_MS: Final = 2**31 - 1  # when its last frame ends: 24 days
MAX_WEBP_TEXTS: Final = 6  # the seventh tag below is one that holds a number


def save_animated_webp(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """images, filename_prefix, fps, lossless, quality, method -> no outputs, but a name for the ui.

    Raises: NodeFailed: the prefix leaves the folder, more pixels, milliseconds or texts than a WebP
    can have, a number out of range, no space.
    """
    return [_save(context, call, ".webp", _webp_options) for call in calls]


def save_animated_png(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """images, filename_prefix, fps, compress_level -> no outputs, but a name for the ui.

    Raises: NodeFailed: the prefix leaves the folder, a number out of range, no space.
    """
    return [_save(context, call, ".png", _png_options) for call in calls]


def _save(
    context: OpContext,
    call: OpCall,
    suffix: str,
    options_for: Callable[[OpCall, Mapping[str, str]], dict[str, Any]],
) -> OpResult:
    images = image_argument(call, "images")
    duration = int(1000.0 / _within(number(call, "fps"), "fps", 0.01, 1000.0))
    if suffix == ".webp":
        _check_webp(images, duration)
    pattern = pattern_for(images, argument(call, "filename_prefix", str), suffix)
    options = {
        **options_for(call, texts_of(context, call)),
        "save_all": True,
        "duration": duration,
    }
    encoder = partial(_encoded, images, options, context.check_cancelled)
    saved = publish(context, call, "output", pattern, [encoder])
    return OpResult(outputs=(), ui={"images": saved, "animated": [True]})


def _check_webp(images: torch.Tensor, duration: int) -> None:
    """See that pictures, so many milliseconds each, fit into a WebP. Raises: NodeFailed."""
    if max(images.shape[1:3]) > MAX_WEBP_SIDE:
        raise NodeFailed(f"a WebP has at most {MAX_WEBP_SIDE} pixels a side", input="images")
    if duration * len(images) > MAX_WEBP_MS:
        raise NodeFailed(f"a WebP lasts {MAX_WEBP_MS} ms at most", input="fps")


def _encoded(
    images: torch.Tensor, options: Mapping[str, Any], check_cancelled: Callable[[], None]
) -> bytes:
    """The frames as one file."""
    frames = []
    for image in images:
        check_cancelled()
        frames.append(eight_bit(image))
    stream = BytesIO()
    frames[0].save(stream, append_images=frames[1:], **options)
    return stream.getvalue()


def _webp_options(call: OpCall, texts: Mapping[str, str]) -> dict[str, Any]:
    method = argument(call, "method", str)
    if method not in METHODS:
        raise NodeFailed(f"method {method!r} is none of {list(METHODS)}", input="method")
    if len(texts) > MAX_WEBP_TEXTS:
        raise NodeFailed(
            f"a WebP tells of {MAX_WEBP_TEXTS} texts at most, and with extra_pnginfo "
            f"there are {len(texts)}",
            input="extra_pnginfo",
        )
    exif = Image.Exif()
    for place, (keyword, text) in enumerate(texts.items()):
        exif[EXIF_MODEL - place] = f"{keyword}:{text}"
    return {
        "format": "WEBP",
        "exif": exif,
        "lossless": argument(call, "lossless", bool),
        "quality": _within(argument(call, "quality", int), "quality", 0, 100),
        "method": METHODS[method],
    }


def _png_options(call: OpCall, texts: Mapping[str, str]) -> dict[str, Any]:
    information = PngInfo()
    for keyword, text in texts.items():
        content = keyword.encode("latin-1") + b"\0" + text.encode("latin-1")
        information.add(b"comf", content, after_idat=True)
    return {
        "format": "PNG",
        "pnginfo": information,
        "compress_level": _within(argument(call, "compress_level", int), "compress_level", 0, 9),
    }


def _within(value: T, name: str, least: T, most: T) -> T:
    """A number that may come over an edge, where nobody looked at it. Raises: NodeFailed."""
    if not least <= value <= most:
        raise NodeFailed(f"input {name} is {value}, not from {least} to {most}", input=name)
    return value
