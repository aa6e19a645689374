"""What every Graph satisfies. A breach is our bug, never the client's."""

from __future__ import annotations

from collections.abc import Mapping

from ..builder import content_signature
from ..errors import GraphBroken
from ..ir import Edge, Graph, Member, Node, NodeId
from ..nodes.op_table import OpSpec, spec_of
from ..types import connects


def verify(graph: Graph) -> None:
    """Raises: GraphBroken: naming the node and the rule.

    Producers stand before consumers (so there is no cycle); ids are unique; each node's arguments,
    model and outputs are its op's, its edges are typed alike; depth and signature are what the
    content says; sinks and the producers that pending nodes wait for exist; every node belongs to
    one member.
    """
    seen: dict[NodeId, Node] = {}
    for node in graph.nodes:
        if node.id in seen:
            raise _broken(node.id, "two nodes have this id")
        producers = {name: _producer(node.id, edge, seen) for name, edge in node.inputs}
        _check_op(node, producers)
        _check_content(node, producers)
        seen[node.id] = node
    for sink in graph.sinks:
        if sink not in seen:
            raise _broken(sink, "the sink is no node")
    for pending in graph.pending:
        for edge in pending.waits_for:
            _producer(pending.id, edge, seen)
    _check_members(graph, seen)


def _producer(consumer: NodeId, edge: Edge, seen: Mapping[NodeId, Node]) -> Node:
    producer = seen.get(edge.source)
    if producer is None:
        raise _broken(consumer, f"its producer {edge.source!r} does not stand before it")
    if not 0 <= edge.port < len(producer.outputs):
        raise _broken(consumer, f"{edge.source!r} has no port {edge.port}")
    return producer


def _check_op(node: Node, producers: Mapping[str, Node]) -> None:
    spec = spec_of(node.op, node.model)
    if spec is None:
        raise _broken(node.id, f"there is no op {node.op!r}")
    given = [name for name, _ in (*node.params, *node.inputs)]
    if not _fit(spec, given):
        raise _broken(node.id, f"{node.op} takes {sorted(spec.args)}, not {sorted(given)}")
    if node.outputs != spec.outputs:
        raise _broken(node.id, f"{node.op} gives {spec.outputs}, not {node.outputs}")
    if (node.model.key.role if node.model else None) != spec.role:
        raise _broken(node.id, f"{node.op} runs on a model of role {spec.role}")
    for name, edge in node.inputs:
        received = producers[name].outputs[edge.port].type
        declared = spec.type_of(name)
        if not connects(received, declared):
            raise _broken(node.id, f"{name} is {declared}, {edge.source!r} gives {received}")


def _fit(spec: OpSpec, given: list[str]) -> bool:
    """Every argument of the op is given once, and whatever else is given is numbered."""
    if len(set(given)) != len(given) or not spec.args.keys() <= set(given):
        return False
    try:
        return all(spec.type_of(name) for name in given)
    except KeyError:
        return False


def _check_content(node: Node, producers: Mapping[str, Node]) -> None:
    edges = [(n, edge.kind, producers[n].signature, edge.port) for n, edge in node.inputs]
    if node.signature != content_signature(node.op, node.model, dict(node.params), edges):
        raise _broken(node.id, "its signature is not that of its content")
    if node.depth != 1 + max((producer.depth for producer in producers.values()), default=-1):
        raise _broken(node.id, f"its depth is not {node.depth}")


def _check_members(graph: Graph, nodes: Mapping[NodeId, Node]) -> None:
    owners: dict[NodeId, str] = {}
    members: dict[str, Member] = {}
    for member in graph.members:
        if member.node_id in members:
            raise _broken(member.node_id, "two members have this id")
        members[member.node_id] = member
        owners.update(dict.fromkeys(member.nodes, member.node_id))
    for node in nodes.values():
        if owners.pop(node.id, None) != node.origin.node_id:
            raise _broken(node.id, f"it is not listed by its member {node.origin.node_id!r}")
    if owners:
        raise _broken(next(iter(owners)), "a member lists it, but it is no node")
    for member in graph.members:
        other = member.shared_with
        if other is not None and (member.nodes or other not in members or not members[other].nodes):
            raise _broken(member.node_id, f"it can't be shared with {other!r}")
    for pending in graph.pending:
        if pending.id not in members or members[pending.id].nodes:
            raise _broken(pending.id, "a pending node must be a member without nodes")


def _broken(node_id: str, rule: str) -> GraphBroken:
    return GraphBroken(f"node {node_id!r}: {rule}", node_id=node_id)
