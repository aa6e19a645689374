"""Nodes of equal signature become one node; what used the others uses that one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..builder import rebuild
from ..ir import Graph, Member, Node, NodeId
from .context import PassContext


def dedupe(graph: Graph, context: PassContext) -> Graph:
    """One node per signature: the one that an earlier Graph has, else the first.

    It stands where the first of its equals stood, so the order stays topological.
    """
    chosen: dict[str, Node] = {}
    for node in graph.nodes:
        rival = chosen.get(node.signature)
        if rival is None or (node.id in context.keep and rival.id not in context.keep):
            chosen[node.signature] = node
    if len(chosen) == len(graph.nodes):
        return graph
    renamed = {node.id: chosen[node.signature].id for node in graph.nodes}
    owners = {node.id: node.origin.node_id for node in chosen.values()}
    members = [_shared(member, renamed, owners) for member in graph.members]
    return rebuild(graph, chosen.values(), members, renamed)


def _shared(
    member: Member, renamed: Mapping[NodeId, NodeId], owners: Mapping[NodeId, str]
) -> Member:
    own = tuple(node_id for node_id in member.nodes if renamed[node_id] == node_id)
    if own or not member.nodes:
        return msgspec.structs.replace(member, nodes=own)
    return msgspec.structs.replace(member, nodes=(), shared_with=owners[renamed[member.nodes[-1]]])
