"""The node classes that prepare pictures for training or take lists of them, as rows."""

from __future__ import annotations

from typing import Final

from ..types import IMAGE, STRING
from .image_rows import MAX_SEED, list_row, row
from .schema import integer, number, socket, text

_IMAGES: Final = socket("images", IMAGE)
_CROP: Final = (
    integer("width", default=512, min=1, max=8192),
    integer("height", default=512, min=1, max=8192),
)
_FACTOR: Final = number("factor", default=1.0, min=0.0, max=2.0)

DATASETS: Final = tuple(
    row(class_type, "dataset", "dataset/image", (_IMAGES, *inputs), name, images=IMAGE)
    for class_type, name, inputs in (
        ("AdjustBrightness", "Adjust Brightness", (_FACTOR,)),
        ("AdjustContrast", "Adjust Contrast", (_FACTOR,)),
        ("CenterCropImages", "Center Crop Images", _CROP),
        (
            "RandomCropImages",
            "Random Crop Images",
            (*_CROP, integer("seed", default=0, min=0, max=MAX_SEED)),
        ),
        (
            "NormalizeImages",
            "Normalize Images",
            (
                number("mean", default=0.5, min=0.0, max=1.0),
                number("std", default=0.5, min=0.001, max=1.0),
            ),
        ),
        (
            "ResizeImagesByLongerEdge",
            "Resize Images by Longer Edge",
            (integer("longer_edge", default=1024, min=1, max=8192),),
        ),
        (
            "ResizeImagesByShorterEdge",
            "Resize Images by Shorter Edge",
            (integer("shorter_edge", default=512, min=1, max=8192),),
        ),
    )
)
_SEED: Final = integer("seed", default=0, min=0, max=MAX_SEED)


LISTS: Final = (
    list_row(
        "ImageDeduplication",
        "Image Deduplication",
        _IMAGES,
        number("similarity_threshold", default=0.95, min=0.0, max=1.0),
        images=IMAGE,
    ),
    list_row(
        "ImageGrid",
        "Image Grid",
        _IMAGES,
        integer("columns", default=4, min=1, max=20),
        integer("cell_width", default=256, min=32, max=2048),
        integer("cell_height", default=256, min=32, max=2048),
        integer("padding", default=4, min=0, max=50),
        gives_lists=False,
        images=IMAGE,
    ),
    list_row("MergeImageLists", "Merge Image Lists", _IMAGES, images=IMAGE),
    list_row(
        "RebatchImages",
        "Rebatch Images",
        _IMAGES,
        integer("batch_size", default=1, min=1, max=4096),
        module="rebatch",
        category="image/batch",
    ),
    list_row("ShuffleDataset", "Shuffle Image Dataset", _IMAGES, _SEED, images=IMAGE),
    list_row(
        "ShuffleImageTextDataset",
        "Shuffle Image-Text Dataset",
        _IMAGES,
        text("texts", multiline=False),
        _SEED,
        images=IMAGE,
        texts=STRING,
    ),
)
