"""The op that encodes a text of its own for each encoder of a text encoder."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..handles import Role
from ..types import CONDITIONING, FLOAT, INT, STRING
from .op_spec import OpSpec
from .schema import ports

SIZES: Final = ("width", "height", "crop_w", "crop_h", "target_width", "target_height")

TABLE: Final[Mapping[str, OpSpec]] = MappingProxyType(
    {
        "text_encode_each": OpSpec(
            args={"text": STRING},
            outputs=ports(conditioning=CONDITIONING),
            optional={
                "text_clip_l": STRING,
                "text_t5xxl": STRING,
                "empty_padding": STRING,
                **dict.fromkeys(SIZES, INT),
                "ascore": FLOAT,
                "guidance": FLOAT,
            },
            role=Role.TEXT_ENCODER,
            numbered={"embedding": STRING},
        ),
    }
)
