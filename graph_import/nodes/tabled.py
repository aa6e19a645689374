"""Node classes that are no more than a schema and a function: whole families in a few lines."""

from __future__ import annotations

from collections.abc import Callable

from .base import NodeClass
from .lowering import Lowering, Value
from .schema import NodeSchema
from .schema import choice as choice

Lower = Callable[[Lowering], tuple[Value, ...]]


def node_class(schema: NodeSchema, lower: Lower, doc: str) -> type[NodeClass]:
    """A node class of `schema` that lowers by `lower`."""

    class Tabled(NodeClass):
        def lower(self, node: Lowering) -> tuple[Value, ...]:
            return lower(node)

    Tabled.schema = schema
    Tabled.__name__ = Tabled.__qualname__ = schema.class_type
    Tabled.__doc__ = doc
    return Tabled
