"""Node classes that are no more than a schema and a function: whole families in a few lines."""

from __future__ import annotations

from collections.abc import Callable

from .base import NodeClass
from .lowering import Lowering, Value
from .schema import COMBO, InputSpec, NodeSchema

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


def choice(name: str, choices: tuple[str, ...], **options: object) -> InputSpec:
    """A combo in the form of ComfyUI's newer classes."""
    return InputSpec(
        name=name,
        type=COMBO,
        options={**options, "multiselect": False},
        choices=choices,
        is_listed=False,
    )
