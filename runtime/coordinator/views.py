"""Pictures of the plant for the page and the operator. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ...graph_import.ir import Graph, Node, NodeId
from ..ids import ExecutorId, RequestId
from ..scheduler.views import ExecutorState, NodeView
from .link import Peer
from .records import ExecutorView


class EdgeView(msgspec.Struct, frozen=True, kw_only=True):
    """An input of a node."""

    name: str
    source: NodeId
    port: int
    kind: str


class OriginView(msgspec.Struct, frozen=True, kw_only=True):
    """The submitted node that a DAG node belongs to."""

    node_id: str
    class_type: str
    value: int
    max: int


class DagNodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A DAG node and how far it is."""

    id: NodeId
    op: str
    model: str | None
    origin: OriginView
    inputs: tuple[EdgeView, ...]
    depth: int
    state: str
    executor: ExecutorId | None


class ShownNode(msgspec.Struct, frozen=True, kw_only=True):
    """What clients were last told of a node."""

    state: str
    executor: ExecutorId | None


class GraphView(msgspec.Struct, frozen=True, kw_only=True):
    """The DAG of a request that is live or ended not long ago."""

    request_id: RequestId
    nodes: tuple[DagNodeView, ...]
    pending: tuple[str, ...]
    members: tuple[dict[str, object], ...]


def graph_view(
    request_id: RequestId,
    graph: Graph,
    shown: Mapping[NodeId, ShownNode],
    states: Mapping[NodeId, NodeView],
) -> GraphView:
    """Join a graph with what was told of it and, while it lives, the scheduler's view of it."""
    return GraphView(
        request_id=request_id,
        nodes=tuple(_node_view(node, _state(node.id, shown, states)) for node in graph.nodes),
        pending=tuple(pending.id for pending in graph.pending),
        members=tuple(
            {
                "node_id": member.node_id,
                "class_type": member.class_type,
                "nodes": list(member.nodes),
                "is_output": member.is_output,
            }
            for member in graph.members
        ),
    )


def _state(
    node_id: NodeId, shown: Mapping[NodeId, ShownNode], states: Mapping[NodeId, NodeView]
) -> ShownNode:
    if node_id in states:
        view = states[node_id]
        return ShownNode(state=str(view.status), executor=view.executor)
    return shown.get(node_id, ShownNode(state="waiting", executor=None))


def _node_view(node: Node, state: ShownNode) -> DagNodeView:
    return DagNodeView(
        id=node.id,
        op=node.op,
        model=None if node.model is None else node.model.key.label(),
        origin=OriginView(
            node_id=node.origin.node_id,
            class_type=node.origin.class_type,
            value=node.origin.value,
            max=node.origin.max_value,
        ),
        inputs=tuple(
            EdgeView(name=name, source=edge.source, port=edge.port, kind=edge.kind)
            for name, edge in node.inputs
        ),
        depth=node.depth,
        state=state.state,
        executor=state.executor,
    )


def executor_views(
    peers: Iterable[Peer], states: Mapping[ExecutorId, ExecutorState]
) -> tuple[ExecutorView, ...]:
    """Join the link's knowledge of processes with the scheduler's of models and batches."""
    views = []
    for peer in sorted(peers, key=lambda peer: peer.executor):
        state = states.get(peer.executor)
        running = None if state is None else state.running_op
        views.append(
            ExecutorView(
                id=peer.executor,
                pid=peer.hello.pid,
                state="idle" if running is None else "busy",
                device=peer.hello.device,
                threads=peer.hello.num_threads,
                resident=() if state is None else tuple(key.label() for key in state.resident),
                num_loads=0 if state is None else state.num_loads,
                running=running,
                rss_bytes=peer.rss_bytes,
                held_bytes=peer.held_bytes,
            )
        )
    return tuple(views)
