"""The node classes that change masks and need no model, as rows of a table."""

from __future__ import annotations

from typing import Final

from ..types import IMAGE, MASK
from .image_rows import MAX_SIDE, row, sides
from .schema import choice, growing, integer, number, socket
from .schema import switch as boolean

_PLACE: Final = sides("x", "y", default=0, low=0)
_SIZE: Final = sides("width", "height")
_IMAGE: Final = socket("image", IMAGE)
_MASK: Final = socket("mask", MASK)

MASKS: Final = (
    row(
        "BatchMasksNode",
        "post_processing",
        "mask",
        (growing("masks", _MASK, min=2, max=50),),
        "Batch Masks",
        MASK=MASK,
    ),
    row("CropMask", "mask", "mask", (_MASK, *_PLACE, *_SIZE), MASK=MASK),
    row(
        "FeatherMask",
        "mask",
        "mask",
        (_MASK, *sides("left", "top", "right", "bottom", default=0, low=0)),
        MASK=MASK,
    ),
    row(
        "GrowMask",
        "mask",
        "mask",
        (
            _MASK,
            integer("expand", default=0, min=-MAX_SIDE, max=MAX_SIDE, step=1),
            boolean("tapered_corners", default=True),
        ),
        "Grow Mask",
        MASK=MASK,
    ),
    row(
        "ImageColorToMask",
        "mask",
        "mask",
        (_IMAGE, integer("color", default=0, min=0, max=0xFFFFFF, step=1, display="number")),
        MASK=MASK,
    ),
    row(
        "ImageToMask",
        "mask",
        "mask",
        (_IMAGE, choice("channel", ("red", "green", "blue", "alpha"))),
        "Convert Image to Mask",
        MASK=MASK,
    ),
    row("InvertMask", "mask", "mask", (_MASK,), MASK=MASK),
    row(
        "JoinImageWithAlpha",
        "compositing",
        "mask/compositing",
        (_IMAGE, socket("alpha", MASK)),
        "Join Image with Alpha",
    ),
    row(
        "SplitImageWithAlpha",
        "compositing",
        "mask/compositing",
        (_IMAGE,),
        "Split Image with Alpha",
        IMAGE=IMAGE,
        MASK=MASK,
    ),
    row(
        "MaskComposite",
        "mask",
        "mask",
        (
            socket("destination", MASK),
            socket("source", MASK),
            *_PLACE,
            choice("operation", ("multiply", "add", "subtract", "and", "or", "xor")),
        ),
        MASK=MASK,
    ),
    row("MaskToImage", "mask", "mask", (_MASK,), "Convert Mask to Image"),
    row(
        "SolidMask",
        "mask",
        "mask",
        (number("value", default=1.0, min=0.0, max=1.0, step=0.01), *_SIZE),
        MASK=MASK,
    ),
    row(
        "ThresholdMask",
        "mask",
        "mask",
        (_MASK, number("value", default=0.5, min=0.0, max=1.0, step=0.01)),
        MASK=MASK,
    ),
)
