"""Drops nodes that nothing needs: a KSampler that was cut to nothing needs no text encoder."""

from __future__ import annotations

import msgspec

from ..builder import rebuild
from ..ir import Graph, NodeId
from .context import PassContext


def prune(graph: Graph, context: PassContext) -> Graph:
    """Keep what a sink or a pending node needs, and what the request's earlier Graph had."""
    needed: set[NodeId] = {*graph.sinks, *context.wanted, *context.keep}
    needed.update(edge.source for pending in graph.pending for edge in pending.waits_for)
    for node in reversed(graph.nodes):
        if node.id in needed:
            needed.update(edge.source for _, edge in node.inputs)
    nodes = [node for node in graph.nodes if node.id in needed]
    if len(nodes) == len(graph.nodes):
        return graph
    members = [
        msgspec.structs.replace(member, nodes=tuple(n for n in member.nodes if n in needed))
        for member in graph.members
    ]
    return rebuild(graph, nodes, members)
