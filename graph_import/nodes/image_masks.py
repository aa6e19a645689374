"""Node classes that change pictures and masks and need no model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..ir import Edge
from .base import NodeClass
from .lowering import Lowering, Value
from .ops_images import PLAIN
from .plain import PlainNode
from .tabled import node_class
from .values import EdgeList, ListValue


def plain_node(row: PlainNode) -> type[NodeClass]:
    """The class of a row."""
    return node_class(row.schema, _lower(row), f"One op: `{row.op}`.")


def _lower(row: PlainNode) -> Callable[[Lowering], tuple[Value, ...]]:
    growing = [item for item in row.schema.inputs if item.grows is not None]

    def lower(node: Lowering) -> tuple[Value, ...]:
        if row.schema.is_input_list:
            return _outputs(row, node.add(row.op, _items(row, node)))
        args = dict(node.inputs)
        for item in growing:
            # The prompt may leave gaps in the numbers; the op sees none.
            for index, grown in enumerate(item.grown(node.inputs)):
                args[f"{item.name}_{index}"] = args.pop(grown.name)
        return node.add(row.op, args)

    return lower


def _items(row: PlainNode, node: Lowering) -> dict[str, Value]:
    """All items of lists, and of a number the first."""
    args: dict[str, Value] = {}
    for name in node.inputs:
        items = node.items(name)
        if name in row.lists:
            args |= {f"{name}_{index}": item for index, item in enumerate(items)}
        elif items:
            args[name] = items[0]
    return args


def _outputs(row: PlainNode, edges: tuple[Edge, ...]) -> tuple[Value, ...]:
    outputs: list[Value] = []
    ports = iter(edges)
    for slot, edge in zip(range(len(row.schema.outputs)), ports, strict=False):
        if row.schema.gives_list(slot):
            outputs.append(ListValue(items=(EdgeList(edge=edge, length=next(ports)),)))
        else:
            outputs.append(edge)
    return tuple(outputs)


NODES: Final[tuple[type[NodeClass], ...]] = tuple(plain_node(row) for row in PLAIN)
