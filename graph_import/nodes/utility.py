"""Node classes that only hand on a scalar: constants are folded, edges passed through."""

from __future__ import annotations

from typing import Final

import msgspec

from ..types import BOOLEAN, FLOAT, INT, STRING
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import InputSpec, NodeSchema, integer, number, ports, switch, text

MAX_INT64: Final = 2**63 - 1


class Primitive(NodeClass):
    """A scalar as a node of its own."""

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return (node.inputs["value"],)


def _schema(type_: str, name: str, value: InputSpec) -> NodeSchema:
    return NodeSchema(
        class_type=f"Primitive{name}",
        display_name=name,
        category="utils/primitive",
        python_module="comfy_extras.nodes_primitive",
        inputs=(value,),
        outputs=ports(**{type_: type_}),
        is_v3=True,
    )


class PrimitiveInt(Primitive):
    """A whole number."""

    schema = _schema(
        INT,
        "Int",
        integer("value", min=-MAX_INT64, max=MAX_INT64, control_after_generate=True),
    )


class PrimitiveFloat(Primitive):
    """A number."""

    schema = _schema(FLOAT, "Float", number("value", min=-MAX_INT64, max=MAX_INT64, step=0.1))


class PrimitiveString(Primitive):
    """A line of text."""

    schema = _schema(STRING, "String", text("value", multiline=False))


class PrimitiveStringMultiline(Primitive):
    """Lines of text."""

    schema = msgspec.structs.replace(
        _schema(STRING, "StringMultiline", text("value", multiline=True)),
        display_name="String (Multiline)",
    )


class PrimitiveBoolean(Primitive):
    """True or false."""

    schema = _schema(BOOLEAN, "Boolean", switch("value"))
