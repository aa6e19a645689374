"""Node classes that are one op: every input goes into it under its own name.

A row of a table says all there is to say; the op's arguments and outputs are read off the schema.
"""

from __future__ import annotations

import re

import msgspec

from ..ir import Port
from ..types import ANY, COMBO, FLOAT, INT, STRING
from .op_spec import OpSpec
from .schema import InputSpec, NodeSchema


class PlainNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node class that lowers to one op with all of its inputs.

    Inputs that grow, and the sockets of classes that take lists, become numbered arguments:
    `images.image1` is `images_1`. After an output that is a list comes its length.
    """

    schema: NodeSchema
    op: str

    @property
    def spec(self) -> OpSpec:
        """The op that the class lowers to; a choice reaches it as text."""
        inputs = self.schema.inputs
        single = [item for item in inputs if not self.is_numbered(item)]
        types = {item.name: STRING if item.type == COMBO else item.type for item in single}
        return OpSpec(
            args={item.name: types[item.name] for item in single if item.is_required},
            optional={item.name: types[item.name] for item in single if not item.is_required},
            numbered={i.name: (i.grows or i).type for i in inputs if self.is_numbered(i)},
            outputs=self._outputs(),
        )

    def is_numbered(self, item: InputSpec) -> bool:
        """Whether the op gets an input as numbered arguments."""
        return item.grows is not None or item.name in self.lists

    @property
    def lists(self) -> frozenset[str]:
        """The inputs of which the op gets all items: those not just a number."""
        if not self.schema.is_input_list:
            return frozenset()
        return frozenset(i.name for i in self.schema.inputs if i.type not in (INT, FLOAT))

    def _outputs(self) -> tuple[Port, ...]:
        outputs: list[Port] = []
        for slot, port in enumerate(self.schema.outputs):
            if self.schema.gives_list(slot):
                outputs.append(Port(name=port.name, type=ANY))
                outputs.append(Port(name=f"{port.name}_length", type=INT))
            else:
                outputs.append(port)
        return tuple(outputs)


def plain(schema: NodeSchema, op: str = "") -> PlainNode:
    """A row: the op's name is the class's in lower case with underscores, if not given."""
    return PlainNode(schema=schema, op=op or op_name(schema.class_type))


def op_name(class_type: str) -> str:
    """`ImageRGBToYUV` -> `image_rgb_to_yuv`."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", class_type)
    return parted.lower()
