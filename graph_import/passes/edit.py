"""An edit of a Graph: nodes added and changed, carried out at once. What passes write with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from ..builder import rebuild
from ..ir import Edge, Graph, Node, NodeId, ParamValue
from ..nodes.op_table import OPS


@dataclass(slots=True)
class Edit:
    """What is to become of a graph.

    Args:
        changed: nodes that stand in for those of the same id.
        renamed: whoever reads a node named first reads the one named second.
        sinks: nodes that must complete, too.
    """

    changed: dict[NodeId, Node] = field(default_factory=dict)
    renamed: dict[NodeId, NodeId] = field(default_factory=dict)
    sinks: list[NodeId] = field(default_factory=list)
    _before: dict[NodeId, list[Node]] = field(default_factory=dict)
    _behind: dict[NodeId, list[Node]] = field(default_factory=dict)

    def add(
        self,
        node_id: NodeId,
        op: str,
        beside: Node,
        params: Mapping[str, ParamValue],
        inputs: Mapping[str, Edge],
        *,
        is_before: bool = False,
    ) -> Edge:
        """Add a node without a model before or behind another, to the same submitted node's part.

        Returns its first output.
        """
        node = Node(
            id=node_id,
            op=op,
            model=None,
            params=tuple(params.items()),
            inputs=tuple(inputs.items()),
            outputs=OPS[op].outputs,
            hidden=(),
            origin=msgspec.structs.replace(beside.origin, value=0, max_value=0),
            depth=0,  # this and the signature are made when the graph is
            signature="",
        )
        place = self._before if is_before else self._behind
        place.setdefault(beside.id, []).append(node)
        return Edge(source=node_id, port=0)

    def applied(self, graph: Graph) -> Graph:
        """The graph after all of it. Raises: GraphBroken: something refers to what isn't there."""
        nodes: list[Node] = []
        owned: dict[str, list[NodeId]] = {}
        for old in graph.nodes:
            added = (*self._before.get(old.id, ()), *self._behind.get(old.id, ()))
            owned.setdefault(old.origin.node_id, []).extend(node.id for node in added)
            nodes += self._before.get(old.id, ())
            nodes.append(self.changed.get(old.id, old))
            nodes += self._behind.get(old.id, ())
        members = [
            msgspec.structs.replace(member, nodes=(*member.nodes, *owned.get(member.node_id, ())))
            for member in graph.members
        ]
        wanted = msgspec.structs.replace(graph, sinks=(*graph.sinks, *self.sinks))
        return rebuild(wanted, nodes, members, self.renamed)
