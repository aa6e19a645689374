"""Node classes that put something on the entries of a conditioning; what steers them stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..types import CONDITIONING
from .base import NodeClass
from .conditioning_rows import ROWS
from .lowering import Lowering, Value
from .plain import PlainNode
from .tabled import node_class


def _lower(row: PlainNode) -> Callable[[Lowering], tuple[Value, ...]]:
    outputs, inputs = row.schema.outputs, row.schema.inputs
    entries = {item.name for item in inputs if item.type == CONDITIONING}

    def lower(node: Lowering) -> tuple[Value, ...]:
        edges = node.add(row.op, node.inputs)
        return tuple(
            node.steering(port.name if port.name in entries else "conditioning").on(edge)
            if port.type == CONDITIONING
            else edge
            for port, edge in zip(outputs, edges, strict=True)
        )

    return lower


NODES: Final[tuple[type[NodeClass], ...]] = tuple(
    node_class(row.schema, _lower(row), f"One op: `{row.op}`.") for row in ROWS
)
