"""The bodies of nodes that prepare pictures for training: crops and resizes through 8 bits.

Source of rules and corner cases: ComfyUI 0.8.0's recorded outputs (`nodes.json` of the goldens).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image

from ..values import Value
from .arguments import argument, image_argument
from .base import OpCall
from .each_call import each_call
from .image import limit_pictures


@each_call
def resize_images_by_longer_edge(call: OpCall) -> tuple[Value, ...]:
    """images, longer_edge -> IMAGE whose longer side is that long."""
    return (_resized(call, argument(call, "longer_edge", int), max),)


@each_call
def resize_images_by_shorter_edge(call: OpCall) -> tuple[Value, ...]:
    """images, shorter_edge -> IMAGE whose shorter side is that long."""
    return (_resized(call, argument(call, "shorter_edge", int), min),)


def _resized(call: OpCall, edge: int, side: Callable[[int, int], int]) -> torch.Tensor:
    images = image_argument(call, "images")
    count, height, width, channels = images.shape
    reference = side(height, width)
    new_height, new_width = height * edge // reference, width * edge // reference
    limit_pictures(count, new_height, new_width, channels)
    resized = [
        to_tensor(to_pillow(image).resize((new_width, new_height), Image.Resampling.LANCZOS))
        for image in images
    ]
    return torch.stack(resized)


@each_call
def center_crop_images(call: OpCall) -> tuple[Value, ...]:
    """images, width, height -> IMAGE; a side that is shorter stays."""
    images = image_argument(call, "images")
    height, width = _crop_size(call, images)
    top, left = (images.shape[1] - height) // 2, (images.shape[2] - width) // 2
    return (_eight_bit(images[:, top : top + height, left : left + width]),)


@each_call
def random_crop_images(call: OpCall) -> tuple[Value, ...]:
    """images, width, height, seed -> IMAGE; a side that is shorter stays."""
    images = image_argument(call, "images")
    height, width = _crop_size(call, images)
    chance = np.random.RandomState(argument(call, "seed", int) % (1 << 32))
    left = int(chance.randint(0, images.shape[2] - width + 1))
    top = int(chance.randint(0, images.shape[1] - height + 1))
    return (_eight_bit(images[:, top : top + height, left : left + width]),)


def _crop_size(call: OpCall, images: torch.Tensor) -> tuple[int, int]:
    height, width = argument(call, "height", int), argument(call, "width", int)
    return min(height, images.shape[1]), min(width, images.shape[2])


def _eight_bit(images: torch.Tensor) -> torch.Tensor:
    """The pictures as multiples of 1/255, cut off."""
    return (images.clamp(0.0, 1.0) * 255.0).to(torch.uint8).to(torch.float32) / 255.0


def to_pillow(image: torch.Tensor) -> Image.Image:
    """One picture [H, W, C] in 8 bits."""
    pixels = (image.clamp(0.0, 1.0) * 255.0).to(torch.uint8)
    return Image.fromarray(pixels.squeeze(-1).numpy())


def to_tensor(picture: Image.Image) -> torch.Tensor:
    """[H, W, C], 0 to 1."""
    pixels = torch.from_numpy(np.array(picture, dtype=np.float32) / np.float32(255.0))
    return pixels if pixels.dim() == 3 else pixels.unsqueeze(-1)
