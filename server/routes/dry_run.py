"""`POST /prompt?dry_run=1`: what a prompt would do and wait for; nothing is accepted."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from ...graph_import.ir import EdgeKind, Graph
from ...runtime.coordinator.service import Coordinator

_YES: Final = frozenset({"1", "true", "yes"})


def wants_dry_run(query: Any) -> bool:
    """Whether the query asks for one."""
    return query.get("dry_run", "") in _YES


def plan_json(graph: Graph, coordinator: Coordinator) -> dict[str, object]:
    """The DAG in numbers, the models that it needs, and estimated seconds."""
    edges = [edge for node in graph.nodes for _, edge in node.inputs]
    return {
        "nodes": len(graph.nodes),
        "ops": dict(Counter(node.op for node in graph.nodes)),
        "edges": len(edges),
        "deferred_edges": sum(edge.kind is EdgeKind.DEFERRED for edge in edges),
        "longest_path": max((node.depth + 1 for node in graph.nodes), default=0),
        "pending": [
            {"node_id": pending.id, "class_type": pending.class_type} for pending in graph.pending
        ],
        "outputs": [member.node_id for member in graph.members if member.is_output],
        "forecast": msgspec.to_builtins(coordinator.forecast(graph)),
    }
