"""What a lowered workflow will do: nodes, loads, what can share a batch. Graph in, report out."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec

from ...graph_import.handles import ModelRef
from ...graph_import.ir import EdgeKind, Graph, Node


class InputReport(msgspec.Struct, frozen=True, kw_only=True):
    """An edge, seen from its consumer."""

    name: str
    source: str
    port: int
    kind: str


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A DAG node; `origin` is the ComfyUI node that it belongs to."""

    id: str
    op: str
    model: str | None
    inputs: tuple[InputReport, ...]
    depth: int
    origin: str
    signature: str


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    """A ComfyUI node and the DAG nodes that it became."""

    node_id: str
    class_type: str
    nodes: tuple[str, ...]
    is_output: bool
    shared_with: str | None


class PendingReport(msgspec.Struct, frozen=True, kw_only=True):
    """A ComfyUI node that is lowered when the values it waits for are there."""

    node_id: str
    class_type: str
    waits_for: tuple[str, ...]


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose weights are needed, and by which models; it is read for each role once."""

    file: str
    num_bytes: int
    models: tuple[str, ...]


class BatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes with equal op and equal weights: they may share forward passes, also with such nodes of
    other requests. At most `num_at_once` of them are ready together in this one."""

    op: str
    model: str
    nodes: tuple[str, ...]
    num_at_once: int


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; `longest_path` in nodes."""

    num_members: int
    num_nodes: int
    num_edges: int
    num_deferred: int
    longest_path: int
    nodes: tuple[NodeReport, ...]
    members: tuple[MemberReport, ...]
    pending: tuple[PendingReport, ...]
    loads: tuple[LoadReport, ...]
    batches: tuple[BatchReport, ...]


def report_on(graph: Graph) -> PlanReport:
    """Describe a lowered graph."""
    edges = [edge for node in graph.nodes for _, edge in node.inputs]
    return PlanReport(
        num_members=len(graph.members),
        num_nodes=len(graph.nodes),
        num_edges=len(edges),
        num_deferred=sum(edge.kind is EdgeKind.DEFERRED for edge in edges),
        longest_path=max((node.depth + 1 for node in graph.nodes), default=0),
        nodes=tuple(_node(node) for node in graph.nodes),
        members=tuple(
            MemberReport(
                node_id=member.node_id,
                class_type=member.class_type,
                nodes=member.nodes,
                is_output=member.is_output,
                shared_with=member.shared_with,
            )
            for member in graph.members
        ),
        pending=tuple(
            PendingReport(
                node_id=pending.id,
                class_type=pending.class_type,
                waits_for=tuple(edge.source for edge in pending.waits_for),
            )
            for pending in graph.pending
        ),
        loads=_loads(graph),
        batches=_batches(graph),
    )


def model_label(ref: ModelRef) -> str:
    """The model key's name, with what is applied to it."""
    label = ref.key.label()
    patches = [f"{patch.file.path.rsplit('/', 1)[-1]}@{patch.strength:g}" for patch in ref.patches]
    options = [f"{name}={value}" for name, value in ref.options]
    return " + ".join([label, *patches, *options])


def _node(node: Node) -> NodeReport:
    return NodeReport(
        id=node.id,
        op=node.op,
        model=None if node.model is None else model_label(node.model),
        inputs=tuple(
            InputReport(name=name, source=edge.source, port=edge.port, kind=str(edge.kind))
            for name, edge in node.inputs
        ),
        depth=node.depth,
        origin=node.origin.node_id,
        signature=node.signature,
    )


def _loads(graph: Graph) -> tuple[LoadReport, ...]:
    models: defaultdict[tuple[str, int], dict[str, None]] = defaultdict(dict)
    for node in graph.nodes:
        if node.model is None:
            continue
        key = node.model.key
        for file in key.files:
            label = f"{key.family}/{key.role} ({key.dtype})"
            models[(file.path, file.size_bytes)][label] = None
        for patch in node.model.patches:
            models[(patch.file.path, patch.file.size_bytes)]["patch"] = None
    return tuple(
        LoadReport(file=path, num_bytes=num_bytes, models=tuple(labels))
        for (path, num_bytes), labels in models.items()
    )


def _batches(graph: Graph) -> tuple[BatchReport, ...]:
    groups: defaultdict[tuple[str, ModelRef], list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.model is not None:
            groups[(node.op, node.model)].append(node)
    return tuple(
        BatchReport(
            op=op,
            model=model_label(model),
            nodes=tuple(node.id for node in nodes),
            num_at_once=max(Counter(node.depth for node in nodes).values()),
        )
        for (op, model), nodes in groups.items()
    )
