"""From the output nodes backwards: a validated prompt becomes a Graph.

Constants are folded on the way, model handles stay symbolic. A node whose lowering needs a value
that only running can tell is left pending; when the value is there the whole prompt is lowered
again with it. Node ids do not depend on what is known, so what was lowered before comes out the
same. Source: architecture, sections 4 and 14 ("Growth").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..builder import GraphBuilder
from ..catalog import Catalog
from ..errors import GraphBroken, ImportProblem, ImportRejected
from ..handles import FileIdentity, Scalar
from ..ir import Edge, Graph, Member, NodeId, Pending
from ..nodes.lists import lower_node, wanted_inputs
from ..nodes.literals import InputRefused
from ..nodes.lowering import (
    Constant,
    GraphTooLarge,
    KnownValues,
    Lowering,
    NeedsValue,
    Value,
    edges_of,
)
from ..nodes.registry import Registry
from ..nodes.values import patch_files_of
from ..passes.base import run_passes
from ..passes.context import PassContext
from ..passes.options import PassOptions
from .api_format import Link, Literal, PromptGraph, PromptNode
from .declared import with_declared
from .pinned import PinnedCatalog
from .problems import at_node, outputs_failed

NOTHING_ASKED: Final = PassOptions()
EdgeValues = Mapping[tuple[NodeId, int], Scalar]  # by (producer, port)


class _Lowered(NamedTuple):
    """A Graph, and the nodes that pending ones will be fed by."""

    graph: Graph
    wanted: frozenset[NodeId]


def lower(
    prompt: PromptGraph,
    roots: tuple[str, ...],
    registry: Registry,
    catalog: Catalog,
    known: EdgeValues | None = None,
) -> Graph:
    """The Graph of a validated prompt, before any pass.

    Args:
        roots: valid output nodes.
        known: values that node outputs turned out to have: they let pending nodes be lowered.
    Raises: ImportRejected: a folded or known value is out of range, a file is gone, or the graph
        is too large.
    """
    values = KnownValues(by_edge=known or {})
    return _importer(prompt, registry, catalog, values).run(roots).graph


def import_prompt(
    prompt: PromptGraph,
    roots: tuple[str, ...],
    registry: Registry,
    catalog: Catalog,
    options: PassOptions = NOTHING_ASKED,
) -> Graph:
    """`lower`, then all passes. Raises: ImportRejected; GraphBroken: our bug."""
    lowered = _importer(prompt, registry, catalog, KnownValues()).run(roots)
    return run_passes(lowered.graph, PassContext(wanted=lowered.wanted, options=options))


def grow(
    graph: Graph,
    prompt: PromptGraph,
    roots: tuple[str, ...],
    registry: Registry,
    catalog: Catalog,
    known: EdgeValues,
    options: PassOptions = NOTHING_ASKED,
) -> Graph:
    """`graph` with what can be lowered now that `known` holds more values (all that are known).

    Every node of `graph` is in the new one, unchanged. Raises: ImportRejected: a known value makes
    no sense where it is used; GraphBroken: our bug.
    """
    old_nodes = graph.by_id()
    if strange := {node_id for node_id, _ in known} - old_nodes.keys():
        raise GraphBroken(f"values are known of {sorted(strange)}, which are no nodes")
    by_content = {(old_nodes[n].signature, port): value for (n, port), value in known.items()}
    values = KnownValues(by_content=by_content)
    lowered = _importer(prompt, registry, PinnedCatalog(catalog, graph), values).run(roots)
    keep = frozenset(old_nodes)
    context = PassContext(wanted=lowered.wanted, keep=keep, known=known, options=options)
    grown = run_passes(lowered.graph, context)
    new_nodes = grown.by_id()
    for node in graph.nodes:
        if new_nodes.get(node.id) != node:
            raise GraphBroken(f"node {node.id!r} changed while the graph grew", node_id=node.id)
    return grown


@dataclass(slots=True)
class _Importer:
    """One prompt being lowered. `outputs` of a pending or refused node are absent.

    Args:
        seen: nodes that were lowered or left pending, by their ids in the prompt.
        asked_for: by node, the lazy inputs that it needs; the others are as if not there.
    """

    prompt: PromptGraph
    registry: Registry
    catalog: Catalog
    known: KnownValues
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    patch_edges: dict[FileIdentity, Edge] = field(default_factory=dict)
    outputs: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    wanted: set[NodeId] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    asked_for: dict[str, frozenset[str]] = field(default_factory=dict)
    problems: list[ImportProblem] = field(default_factory=list)

    def run(self, roots: tuple[str, ...]) -> _Lowered:
        for root in roots:
            self._lower_upstream(root, frozenset(roots))
        if self.problems:
            raise self._rejection()
        return _Lowered(self.builder.build(), frozenset(self.wanted))

    def _lower_upstream(self, root: str, outputs: frozenset[str]) -> None:
        """Lower `root` and what it needs, producers before consumers; without recursion."""
        path = {root: self._sources(root)} if root not in self.seen else {}
        while path:
            node_id, sources = next(reversed(path.items()))
            source = next((s for s in sources if s not in self.seen), None)
            if source is None and not self._asks_for_more(node_id):
                self.seen.add(node_id)
                self._add(self.prompt.nodes[node_id], is_output=node_id in outputs)
                path.popitem()
            elif source is None:
                path[node_id] = self._sources(node_id)
            elif source in path:
                raise GraphBroken(f"{source!r} needs itself: the prompt was not validated")
            else:
                path[source] = self._sources(source)

    def _sources(self, node_id: str) -> Iterator[str]:
        """The nodes that feed the inputs of a node."""
        values = self._given(self.prompt.nodes[node_id])
        return (given.node_id for _, given in values if isinstance(given, Link))

    def _asks_for_more(self, node_id: str) -> bool:
        """Whether the node needs lazy inputs; asked once, when its other inputs are lowered."""
        node = self.prompt.nodes[node_id]
        cls = self.registry[node.class_type]
        if node_id in self.asked_for or not any(spec.is_lazy for spec in cls.schema.inputs):
            return False
        inputs, is_waiting = self._inputs(node)
        wanted = wanted_inputs(cls, self._lowering(node, inputs)) if not is_waiting else frozenset()
        self.asked_for[node_id] = wanted
        return bool(wanted)

    def _add(self, node: PromptNode, *, is_output: bool) -> None:
        nodes = self._lower(node)
        member = Member(
            node_id=node.id, class_type=node.class_type, nodes=nodes, is_output=is_output
        )
        self.builder.add_member(member)
        for dag_node in nodes if is_output else ():
            self.builder.add_sink(dag_node)

    def _lower(self, node: PromptNode) -> tuple[NodeId, ...]:
        """Add the node's DAG nodes, or note it as pending; its outputs become known or not."""
        cls = self.registry[node.class_type]
        inputs, is_waiting = self._inputs(node)
        if is_waiting:
            self._leave_pending(node, (), inputs)
            return ()
        lowering = self._lowering(node, inputs)
        try:
            self.outputs[node.id] = lower_node(cls, lowering)
        except NeedsValue as needs:
            self._take_back(lowering.nodes)
            self._leave_pending(node, needs.edges, inputs)
            return ()
        except InputRefused as refused:
            self.problems.append(at_node(node, refused.complaint))
            if isinstance(refused, GraphTooLarge):
                raise self._rejection() from refused
        return tuple(lowering.nodes)

    def _lowering(self, node: PromptNode, inputs: Mapping[str, Value]) -> Lowering:
        return Lowering(
            node_id=node.id,
            schema=self.registry[node.class_type].schema,
            inputs=inputs,
            known=self.known,
            catalog=self.catalog,
            builder=self.builder,
            patch_edges=self.patch_edges,
        )

    def _inputs(self, node: PromptNode) -> tuple[dict[str, Value], bool]:
        """The values on the declared inputs, and whether some come from a pending node."""
        values: dict[str, Value] = {}
        is_waiting = False
        for name, given in self._given(node):
            if isinstance(given, Literal):
                values[name] = Constant(value=given.value)
            elif given.node_id in self.outputs:
                values[name] = self.outputs[given.node_id][given.slot]
            else:
                is_waiting = True
        return values, is_waiting

    def _given(self, node: PromptNode) -> Iterator[tuple[str, Link | Literal]]:
        """The declared inputs, as given, in the class's order; of the lazy ones those needed."""
        given = node.inputs or {}
        asked_for = self.asked_for.get(node.id, frozenset())
        for spec in self.registry[node.class_type].schema.inputs_of(given):
            match given.get(spec.name):
                case Link() if spec.is_lazy and spec.name not in asked_for:
                    continue
                case (Link() | Literal()) as value:
                    yield spec.name, value

    def _rejection(self) -> ImportRejected:
        """All problems so far; the text at the top is of every one."""
        erring = [problem.node_id for problem in self.problems]
        return outputs_failed(self.problems, erring, {})

    def _take_back(self, nodes: list[NodeId]) -> None:
        """Forget what was added of a node that has to wait after all."""
        self.builder.take_back(nodes)
        for file in [file for file, edge in self.patch_edges.items() if edge.source in nodes]:
            del self.patch_edges[file]

    def _leave_pending(
        self, node: PromptNode, waits_for: tuple[Edge, ...], inputs: Mapping[str, Value]
    ) -> None:
        self.wanted.update(edge.source for value in inputs.values() for edge in edges_of(value))
        files = [file for value in inputs.values() for file in patch_files_of(value)]
        self.wanted.update(self.patch_edges[file].source for file in files)
        self.builder.add_pending(
            Pending(id=NodeId(node.id), class_type=node.class_type, waits_for=waits_for)
        )


def _importer(
    prompt: PromptGraph, registry: Registry, catalog: Catalog, known: KnownValues
) -> _Importer:
    return _Importer(prompt, with_declared(registry, prompt), catalog, known)
