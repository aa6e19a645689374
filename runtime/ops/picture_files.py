"""Picture files as IMAGE and MASK: orientation, palettes, frames, alpha; bombs are refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import torch
from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

from ..errors import NodeFailed
from ..models.weight_files import problem

MAX_PIXELS: Final = 178_956_970  # of all frames; Pillow's own limit, 2.1 GB as float32
# Formats that decode in memory and start no other program.
FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "TGA", "ICO", "AVIF")
MAX_FRAMES: Final = 10_000  # each has a mask, however small it is
NO_ALPHA_SIDE: Final = 64
CHANNELS: Final = {"red": "R", "green": "G", "blue": "B", "alpha": "A"}


def read_picture(
    path: Path, check_cancelled: Callable[[], None]
) -> tuple[torch.Tensor, torch.Tensor]:
    """IMAGE float32 [frames, H, W, 3] and MASK [frames, H, W], 1 where the picture is transparent.

    Frames of another size than the first are left out. A picture without alpha has a mask of
    [frames, 64, 64] zeros. 16-bit values are cut at 255, as ComfyUI does.

    Raises: ModelFileProblem: no picture of a known format, damaged, or too large.
    """
    with _opened(path) as picture:
        return _read_frames(path, picture, check_cancelled)


def read_mask(path: Path, channel: str) -> torch.Tensor:
    """MASK float32 [1, H, W]: one channel of the first frame, `red`, `green`, `blue` or `alpha`.

    Alpha is inverted: 1 where the picture is transparent, 0 everywhere in a picture without it.

    Raises: ModelFileProblem, as `read_picture`. NodeFailed: no such channel.
    """
    if channel not in CHANNELS:
        raise NodeFailed(f"a picture has no channel {channel!r}", input="channel")
    with _opened(path) as picture:
        if picture.width * picture.height > MAX_PIXELS:
            raise problem(path, f"the picture has more than {MAX_PIXELS} pixels")
        whole = ImageOps.exif_transpose(picture).convert("RGBA")
    mask = _pixels(whole.getchannel(CHANNELS[channel]))[None]
    return 1.0 - mask if channel == "alpha" else mask


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """A picture to be decoded; what goes wrong with the file becomes ModelFileProblem."""
    try:
        with warnings.catch_warnings():
            # Pillow warns at half of the limit that it raises at.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as picture:
                yield picture
    except Image.DecompressionBombError as error:
        raise problem(path, f"the picture has more than {MAX_PIXELS} pixels") from error
    except UnidentifiedImageError as error:
        raise problem(path, "this is no picture of a known format") from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise problem(path, f"the picture is damaged: {error}") from error


def _read_frames(
    path: Path, picture: Image.Image, check_cancelled: Callable[[], None]
) -> tuple[torch.Tensor, torch.Tensor]:
    images: list[torch.Tensor] = []
    masks: list[torch.Tensor] = []
    num_pixels = 0
    size: tuple[int, int] | None = None
    for index, frame in enumerate(ImageSequence.Iterator(picture)):
        check_cancelled()
        num_pixels += frame.width * frame.height
        if num_pixels > MAX_PIXELS:
            raise problem(path, f"the picture has more than {MAX_PIXELS} pixels")
        if index == MAX_FRAMES:
            raise problem(path, f"the picture has more than {MAX_FRAMES} frames")
        upright = ImageOps.exif_transpose(frame)
        size = size or upright.size
        if upright.size == size:
            images.append(_pixels(upright.convert("RGB")))
            masks.append(_mask(upright))
        if picture.format == "MPO":
            break  # further pictures of a camera's file are its thumbnails
    if len(images) == 1:
        return images[0][None], masks[0][None]  # without the copy: a picture may be large
    return torch.stack(images), torch.stack(masks)


def _pixels(picture: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(picture, dtype=np.float32) / np.float32(255.0))


def _mask(picture: Image.Image) -> torch.Tensor:
    """1 - alpha."""
    if picture.has_transparency_data:
        return 1.0 - _pixels(picture.convert("RGBA").getchannel("A"))
    return torch.zeros(NO_ALPHA_SIDE, NO_ALPHA_SIDE)
