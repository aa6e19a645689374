"""`GraphBuilder`: the only maker of Graphs. Passes edit a Graph by building another one.

Depth and content signature of a node are computed here and nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from .errors import GraphBroken
from .handles import ModelRef
from .ir import (
    Edge,
    EdgeKind,
    Graph,
    Member,
    Node,
    NodeId,
    Origin,
    ParamValue,
    Pending,
    Port,
)


def content_signature(
    op: str,
    model: ModelRef | None,
    params: Mapping[str, ParamValue],
    inputs: Sequence[tuple[str, EdgeKind, str, int]],
) -> str:
    """What a node computes, as 64 hex digits: equal signatures mean equal results.

    Args: inputs: (name, kind, signature of the producer, its port). The order of params and inputs
    does not matter; ids, origin and hidden values are no part of it.
    """
    content = (op, model, sorted(params.items()), sorted(inputs))
    return hashlib.sha256(msgspec.msgpack.encode(content)).hexdigest()


class GraphBuilder:
    """Adds nodes in topological order, then `build()`s. Refusals are our bugs: `GraphBroken`."""

    def __init__(self) -> None:
        self._nodes: dict[NodeId, Node] = {}
        self._pending: list[Pending] = []
        self._members: list[Member] = []
        self._sinks: list[NodeId] = []
        self.num_numbers = 0

    @property
    def num_nodes(self) -> int:
        """Nodes so far. (`num_numbers` counts the floats that their tuples of sigmas hold.)"""
        return len(self._nodes)

    def signature(self, node_id: NodeId) -> str:
        """The content signature of a node that was added. Raises: KeyError."""
        return self._nodes[node_id].signature

    def add(
        self,
        node_id: NodeId,
        op: str,
        *,
        model: ModelRef | None = None,
        params: Mapping[str, ParamValue],
        inputs: Mapping[str, Edge],
        outputs: Sequence[Port],
        hidden: Sequence[str] = (),
        origin: Origin,
    ) -> tuple[Edge, ...]:
        """Add a node whose producers are there already; returns an edge per output port.

        Raises: GraphBroken: the id is taken, a producer or its port is missing, or a name is both
        a constant and an input.
        """
        if node_id in self._nodes:
            raise GraphBroken(f"two nodes are called {node_id!r}", node_id=node_id)
        if twice := params.keys() & inputs.keys():
            raise GraphBroken(f"{node_id!r} is given {sorted(twice)} twice", node_id=node_id)
        producers = {name: self._producer(node_id, name, edge) for name, edge in inputs.items()}
        self._nodes[node_id] = Node(
            id=node_id,
            op=op,
            model=model,
            params=tuple(params.items()),
            inputs=tuple(inputs.items()),
            outputs=tuple(outputs),
            hidden=tuple(hidden),
            origin=origin,
            depth=1 + max((producer.depth for producer in producers.values()), default=-1),
            signature=content_signature(
                op,
                model,
                params,
                [
                    (name, edge.kind, producers[name].signature, edge.port)
                    for name, edge in inputs.items()
                ],
            ),
        )
        self.num_numbers += _num_numbers(params)
        return tuple(Edge(source=node_id, port=port) for port in range(len(outputs)))

    def take_back(self, node_ids: Iterable[NodeId]) -> None:
        """Forget nodes that nothing reads yet. Raises: KeyError: one was never added."""
        for node_id in node_ids:
            node = self._nodes.pop(node_id)
            self.num_numbers -= _num_numbers(dict(node.params))

    def add_pending(self, pending: Pending) -> None:
        """Note a ComfyUI node that can't be lowered yet."""
        for edge in pending.waits_for:
            self._producer(pending.id, "waits_for", edge)
        self._pending.append(pending)

    def add_member(self, member: Member) -> None:
        """Note a ComfyUI node and what it became, after the members that it depends on."""
        self._members.append(member)

    def add_sink(self, node_id: NodeId) -> None:
        """Demand that a node completes."""
        if node_id not in self._nodes:
            raise GraphBroken(f"the sink {node_id!r} is no node", node_id=node_id)
        if node_id not in self._sinks:
            self._sinks.append(node_id)

    def build(self) -> Graph:
        """The Graph so far."""
        return Graph(
            nodes=tuple(self._nodes.values()),
            sinks=tuple(self._sinks),
            pending=tuple(self._pending),
            members=tuple(self._members),
        )

    def _producer(self, consumer: NodeId, name: str, edge: Edge) -> Node:
        producer = self._nodes.get(edge.source)
        if producer is None or not 0 <= edge.port < len(producer.outputs):
            raise GraphBroken(
                f"{consumer!r} needs port {edge.port} of {edge.source!r} for {name!r}: none such",
                node_id=consumer,
            )
        return producer


def _num_numbers(params: Mapping[str, ParamValue]) -> int:
    return sum(len(value) for value in params.values() if isinstance(value, tuple))


def rebuild(
    graph: Graph,
    nodes: Iterable[Node],
    members: Iterable[Member],
    renamed: Mapping[NodeId, NodeId] | None = None,
) -> Graph:
    """`graph` with these nodes and members only; edges, sinks and what is waited for are renamed.

    Raises: GraphBroken: something left refers to a node that is gone.
    """
    names = renamed or {}
    builder = GraphBuilder()

    def moved(edge: Edge) -> Edge:
        return msgspec.structs.replace(edge, source=names.get(edge.source, edge.source))

    for node in nodes:
        builder.add(
            node.id,
            node.op,
            model=node.model,
            params=dict(node.params),
            inputs={name: moved(edge) for name, edge in node.inputs},
            outputs=node.outputs,
            hidden=node.hidden,
            origin=node.origin,
        )
    for pending in graph.pending:
        waits_for = tuple(moved(edge) for edge in pending.waits_for)
        builder.add_pending(msgspec.structs.replace(pending, waits_for=waits_for))
    for member in members:
        builder.add_member(member)
    for sink in graph.sinks:
        builder.add_sink(names.get(sink, sink))
    return builder.build()
