"""Node classes that change pictures and masks and need no model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .base import NodeClass
from .lowering import Lowering, Value
from .ops_images import PLAIN
from .plain import PlainNode
from .tabled import node_class


def plain_node(row: PlainNode) -> type[NodeClass]:
    """The class of a row."""
    return node_class(row.schema, _lower(row), f"One op: `{row.op}`.")


def _lower(row: PlainNode) -> Callable[[Lowering], tuple[Value, ...]]:
    growing = [item for item in row.schema.inputs if item.grows is not None]

    def lower(node: Lowering) -> tuple[Value, ...]:
        args = dict(node.inputs)
        for item in growing:
            # The prompt may leave gaps in the numbers; the op sees none.
            for index, grown in enumerate(item.grown(node.inputs)):
                args[f"{item.name}_{index}"] = args.pop(grown.name)
        return node.add(row.op, args)

    return lower


NODES: Final[tuple[type[NodeClass], ...]] = tuple(plain_node(row) for row in PLAIN)
