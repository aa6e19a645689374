"""Node classes that are one op: every input goes into it under its own name.

A row of a table says all there is to say; the op's arguments and outputs are read off the schema.
"""

from __future__ import annotations

import re

import msgspec

from ..types import COMBO, STRING
from .op_spec import OpSpec
from .schema import NodeSchema


class PlainNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node class that lowers to one op with all of its inputs.

    Inputs that grow become numbered arguments: `images.image1` is `images_1`.
    """

    schema: NodeSchema
    op: str

    @property
    def spec(self) -> OpSpec:
        """The op that the class lowers to; a choice reaches it as text."""
        single = [item for item in self.schema.inputs if item.grows is None]
        types = {item.name: STRING if item.type == COMBO else item.type for item in single}
        return OpSpec(
            args={item.name: types[item.name] for item in single if item.is_required},
            optional={item.name: types[item.name] for item in single if not item.is_required},
            numbered={i.name: i.grows.type for i in self.schema.inputs if i.grows is not None},
            outputs=self.schema.outputs,
        )


def plain(schema: NodeSchema, op: str = "") -> PlainNode:
    """A row: the op's name is the class's in lower case with underscores, if not given."""
    return PlainNode(schema=schema, op=op or op_name(schema.class_type))


def op_name(class_type: str) -> str:
    """`ImageRGBToYUV` -> `image_rgb_to_yuv`."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", class_type)
    return parted.lower()
