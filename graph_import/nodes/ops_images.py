"""The ops of pictures and masks that need no model, by the module that has their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..types import ANY, BOOLEAN, FLOAT, IMAGE, INT, STRING
from .dataset_schemas import DATASETS, LISTS
from .image_schemas import IMAGES
from .mask_schemas import MASKS
from .op_spec import OpSpec
from .plain import PlainNode
from .schema import ports

PLAIN: Final[tuple[PlainNode, ...]] = (*IMAGES, *MASKS, *DATASETS, *LISTS)
_RESIZE: Final = OpSpec(
    args={"input": ANY, "resize_type": STRING, "scale_method": STRING},
    optional={
        "multiplier": FLOAT,
        **dict.fromkeys(("width", "height", "longer_size", "shorter_size"), INT),
        "megapixels": FLOAT,
        "match": ANY,
        "crop": STRING,
    },
    outputs=ports(resized=ANY),
)
_ANIMATION: Final[Mapping[str, str]] = {"images": IMAGE, "filename_prefix": STRING, "fps": FLOAT}
TABLE: Final[Mapping[str, OpSpec]] = MappingProxyType(
    {
        **{row.op: row.spec for row in PLAIN},
        "resize_image_mask_node": _RESIZE,
        "save_animated_webp": OpSpec(
            args={**_ANIMATION, "lossless": BOOLEAN, "quality": INT, "method": STRING}, outputs=()
        ),
        "save_animated_png": OpSpec(args={**_ANIMATION, "compress_level": INT}, outputs=()),
    }
)
