"""The bodies of nodes that take or give lists of pictures ([B, H, W, C] each).

Source of rules and corner cases: ComfyUI 0.8.0's recorded outputs (`nodes.json` of the goldens).
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
import torch
from PIL import Image

from ..errors import NodeFailed
from ..values import Value
from .arguments import argument, image_argument, number, numbered
from .base import OpCall
from .each_call import each_call
from .image import limit_pictures
from .image_dataset import to_pillow, to_tensor

T = TypeVar("T")
MAX_BATCHES: Final = 4096
HASH_SIDE: Final = 8


@each_call
def merge_image_lists(call: OpCall) -> tuple[Value, ...]:
    """images_N -> all of them as one list."""
    images = _images(call)
    return (tuple(images), len(images))


@each_call
def rebatch_images(call: OpCall) -> tuple[Value, ...]:
    """images_N, batch_size -> a list of batches of that many; another size begins a new batch."""
    size = argument(call, "batch_size", int)
    batches: list[list[torch.Tensor]] = []
    for image in (one for batch in _images(call) for one in batch[:, None]):
        if not batches or len(batches[-1]) == size or batches[-1][0].shape != image.shape:
            batches.append([])
        batches[-1].append(image)
    if len(batches) > MAX_BATCHES:
        raise NodeFailed(f"{len(batches)} batches are too many: {MAX_BATCHES} may be")
    return (tuple(torch.cat(batch) for batch in batches), len(batches))


@each_call
def shuffle_dataset(call: OpCall) -> tuple[Value, ...]:
    """images_N, seed -> the list in another order."""
    images = _images(call)
    return (_shuffled(call, images), len(images))


@each_call
def shuffle_image_text_dataset(call: OpCall) -> tuple[Value, ...]:
    """images_N, texts_N, seed -> both lists in the same other order."""
    images, texts = _images(call), numbered(call, "texts", str)
    if len(images) != len(texts):
        raise NodeFailed(f"there are {len(images)} images and {len(texts)} texts", input="texts")
    shuffled = (_shuffled(call, images), _shuffled(call, texts))
    return (shuffled[0], len(images), shuffled[1], len(texts))


@each_call
def image_deduplication(call: OpCall) -> tuple[Value, ...]:
    """images_N, similarity_threshold -> the list without those that look like an earlier one.

    What is compared: the bits of an average hash of 8 x 8 grey pixels.
    """
    threshold = number(call, "similarity_threshold")
    kept: list[torch.Tensor] = []
    hashes: list[torch.Tensor] = []
    for image in _images(call):
        own = _average_hash(image)
        if all(float((own == other).float().mean()) < threshold for other in hashes):
            kept.append(image)
            hashes.append(own)
    return (tuple(kept), len(kept))


def _average_hash(image: torch.Tensor) -> torch.Tensor:
    """bool [8, 8]: which parts of the first picture are brighter than its mean."""
    grey = to_pillow(image[0]).convert("L")
    small = to_tensor(grey.resize((HASH_SIDE, HASH_SIDE), Image.Resampling.LANCZOS))[..., 0]
    return small > small.mean()


@each_call
def image_grid(call: OpCall) -> tuple[Value, ...]:
    """images_N, columns, cell_width, cell_height, padding -> one IMAGE of them all, row by row."""
    images, columns = _images(call), argument(call, "columns", int)
    width, height = argument(call, "cell_width", int), argument(call, "cell_height", int)
    padding = argument(call, "padding", int)
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    high = rows * height + (rows - 1) * padding
    wide = columns * width + (columns - 1) * padding
    limit_pictures(1, high, wide, 3)
    grid = torch.zeros(1, high, wide, 3)
    for index, image in enumerate(images):
        top = index // columns * (height + padding)
        left = index % columns * (width + padding)
        cell = to_pillow(image[0]).convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        grid[0, top : top + height, left : left + width] = to_tensor(cell)
    return (grid,)


def _images(call: OpCall) -> list[torch.Tensor]:
    names = (f"images_{index}" for index in range(len(call.args)))
    images = [image_argument(call, name) for name in names if name in call.args]
    if not images:
        raise NodeFailed("there are no images", input="images")
    return images


def _shuffled(call: OpCall, items: list[T]) -> tuple[T, ...]:
    chance = np.random.RandomState(argument(call, "seed", int) % (1 << 32))
    return tuple(items[index] for index in chance.permutation(len(items)))
