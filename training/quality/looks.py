"""What is measured in a picture, uint8 [128, 128, 3]: colours, silhouettes, contours, tones."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ..rendering import Pixels
from ..scenes import PAINTS

Mask = NDArray[np.bool_]

PAINT_REACH: Final = 75.0  # a pixel nearer than this to a paint, in RGB, is of that paint
MIN_PIXELS: Final = 120
EDGE_STEP: Final = 40.0  # levels (of 255): where a channel changes by less there is no edge
RIDGE: Final = 0.7  # of the steepest slope nearby: what is less steep is beside the edge
INK_BELOW: Final = 120.0  # levels: the nearer to black below it, the more a pixel is ink
LUMINANCE: Final = np.array([0.299, 0.587, 0.114])


def foreground(pixels: Pixels) -> tuple[str, Mask] | None:
    """The paint that most pixels have, and its largest patch; None: hardly a pixel has one."""
    paints = np.array(list(PAINTS.values()), np.float64)
    distances = np.linalg.norm(pixels[:, :, None].astype(np.float64) - paints, axis=-1)
    nearest = np.where(distances.min(axis=-1) < PAINT_REACH, distances.argmin(axis=-1), -1)
    counts = np.bincount(nearest[nearest >= 0], minlength=len(paints))
    if counts.max() < MIN_PIXELS:
        return None
    most = int(counts.argmax())
    return list(PAINTS)[most], largest_patch(nearest == most)


def largest_patch(mask: Mask) -> Mask:
    """The largest connected part of a mask that is not empty, its holes filled."""
    labels, count = ndimage.label(ndimage.binary_opening(mask))
    if count == 0:
        return mask
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    filled: Mask = ndimage.binary_fill_holes(labels == sizes.argmax())
    return filled


def edges(pixels: Pixels) -> Mask:
    """Where colours change most, some three pixels wide, and one pixel more to each side."""
    smooth = ndimage.gaussian_filter(pixels.astype(np.float64), (0.7, 0.7, 0.0))
    across, down = (ndimage.sobel(smooth, axis=axis) / 8.0 for axis in (0, 1))
    slopes = np.hypot(across, down).max(axis=-1)
    is_ridge = slopes >= RIDGE * ndimage.maximum_filter(slopes, 5)
    widened: Mask = ndimage.binary_dilation(is_ridge & (slopes > EDGE_STEP / 4), np.ones((3, 3)))
    return widened


def line(hint: Pixels) -> Mask:
    """A hint's contours, one pixel wider on each side, as `edges` are."""
    widened: Mask = ndimage.binary_dilation(hint[..., 0] > 127, np.ones((3, 3)))
    return widened


def overlap(one: Mask, other: Mask) -> float:
    """Intersection over union of two masks."""
    union = int((one | other).sum())
    return float((one & other).sum() / union) if union else 1.0


def ink(pixels: Pixels) -> float:
    """How much black there is: 0 for none, 1 for a black picture."""
    brightest = pixels.max(axis=-1).astype(np.float64)
    return float(np.clip(1.0 - brightest / INK_BELOW, 0.0, 1.0).mean())


def brownness(pixels: Pixels) -> float:
    """How near the colours are to tones of one hue: minus the mean distance from brown, levels.

    What a picture of one hue keeps of its colours follows from their luminance; the rest is
    distance.
    """
    values = pixels.astype(np.float64)
    grey = (values @ LUMINANCE)[..., None] / 255.0
    dark, light = np.array((45.0, 28.0, 12.0)), np.array((250.0, 226.0, 178.0))
    own = dark + grey * (light - dark)
    chroma, brown = values - values.mean(-1, keepdims=True), own - own.mean(-1, keepdims=True)
    return -float(np.linalg.norm(chroma - brown, axis=-1).mean())
