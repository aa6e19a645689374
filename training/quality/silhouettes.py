"""Which shape a silhouette is: compared with drawn ones, after both are brought to one size."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..rendering import render_mask
from ..scenes import RADII, SHAPES, SIZE, Layout, Scene, Thing

Mask = NDArray[np.bool_]

SIDE: Final = 48  # of the squares in which silhouettes are compared
MIN_PIXELS: Final = 120  # less is no thing


def shape_of(mask: Mask) -> str | None:
    """The shape whose drawn silhouette covers `mask` [h, w] best; None: it is empty or too small.

    The measure is intersection over union.
    """
    if int(mask.sum()) < MIN_PIXELS:
        return None
    given = _framed(mask)
    return max(SHAPES, key=lambda shape: max(_overlap(given, t) for t in _templates(shape)))


@cache
def _templates(shape: str) -> tuple[NDArray[np.float64], ...]:
    """The shape as it is drawn in each size."""
    middle = SIZE / 2
    scenes = (
        Scene(
            layout=Layout.SINGLE,
            background="white",
            things=(Thing(shape=shape, colour="red", x=middle, y=middle, radius=(low + high) / 2),),
        )
        for low, high in RADII.values()
    )
    return tuple(_framed(render_mask(scene)) for scene in scenes)


def _framed(mask: Mask) -> NDArray[np.float64]:
    """The silhouette in the middle of a square that it touches, 0 to 1, [SIDE, SIDE]."""
    rows, columns = np.nonzero(mask)
    cut = mask[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    height, width = cut.shape
    side = max(height, width)
    square = np.zeros((side, side), np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = cut * 255
    resized = Image.fromarray(square).resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(resized, np.float64) / 255.0


def _overlap(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.minimum(one, other).sum() / np.maximum(one, other).sum())
