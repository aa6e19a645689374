"""Group nodes, which subgraphs replaced: each kind becomes a subgraph definition.

Source: spec importer-rules.md, section 11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from .interface import NodeTable
from .notes import WorkflowFileProblem
from .resolve import REROUTE
from .scopes import class_of
from .ui_graph import (
    INPUT_NODE,
    OUTPUT_NODE,
    Definition,
    UiDocument,
    UiGraph,
    UiLink,
    UiNode,
    read_graph,
)
from .widgets import Stored, read_widgets

PREFIXES: Final = ("workflow>", "workflow/")


def with_group_nodes(document: UiDocument, table: NodeTable) -> UiDocument:
    """The document with its group nodes as nodes of subgraphs. Raises: WorkflowFileProblem."""
    used = {
        node.type
        for graph in (document.root, *(d.graph for d in document.definitions.values()))
        for node in graph.nodes.values()
        if node.type.startswith(PREFIXES)
    }
    for type_ in sorted(used):
        described = document.group_nodes.get(type_.split(type_[8], 1)[1])
        if isinstance(described, dict):
            document.definitions[type_] = _definition(type_, described, document, table)
    for graph in (document.root, *(d.graph for d in document.definitions.values())):
        for node in list(graph.nodes.values()):
            if node.type in used and node.type in document.definitions:
                graph.nodes[node.id] = _host(node, document.definitions[node.type], table)
    return document


def _definition(
    type_: str, described: Mapping[str, Any], document: UiDocument, table: NodeTable
) -> Definition:
    graph = UiGraph(f"group node {type_[9:]!r}")
    nodes = described.get("nodes")
    numbered = [
        {**node, "id": node.get("index", index)}
        for index, node in enumerate(nodes if isinstance(nodes, list) else ())
        if isinstance(node, dict)
    ]
    if any(not isinstance(node["id"], int) for node in numbered):
        raise WorkflowFileProblem(f"{graph.place}: a node's index is no number")
    read_graph({"nodes": numbered}, graph, document.notes)
    for number, link in enumerate(_links(described.get("links"))):
        _add(graph, UiLink(f"l{number}", *link))
    inputs = list(_open_inputs(graph))
    for slot, (_, node_id, index) in enumerate(inputs):
        _add(graph, UiLink(f"i{slot}", INPUT_NODE, slot, node_id, index))
    outputs = list(_open_outputs(graph, described.get("external")))
    for slot, (_, node_id, index) in enumerate(outputs):
        _add(graph, UiLink(f"o{slot}", node_id, index, OUTPUT_NODE, slot))
    # Links are looked up by target: the inner nodes' own link fields are of the time before.
    for node in graph.nodes.values():
        fields = tuple(msgspec.structs.replace(item, link=None) for item in node.inputs)
        graph.nodes[node.id] = msgspec.structs.replace(node, inputs=fields)
    return Definition(
        id=type_,
        name=type_[9:],
        graph=graph,
        inputs=tuple((name, (f"i{slot}",)) for slot, (name, _, _) in enumerate(inputs)),
        output_names=tuple(name for name, _, _ in outputs),
    )


def _host(node: UiNode, definition: Definition, table: NodeTable) -> UiNode:
    """The group node as a subgraph's: inputs by position, values handed to the inner nodes."""
    renamed = tuple(
        msgspec.structs.replace(item, name=definition.inputs[slot][0])
        for slot, item in enumerate(node.inputs)
        if slot < len(definition.inputs)
    )
    entries = list(node.stored) if isinstance(node.stored, list) else []
    proxies: list[tuple[str, str]] = []
    values: list[Any] = []
    for inner in definition.graph.nodes.values():
        interface = table.get(class_of(inner))
        if interface is None:
            count = len(inner.stored) if isinstance(inner.stored, list) else 0
            entries = entries[count:]
            continue
        own: Stored = entries
        read = read_widgets(interface, own)
        taken = read.num_stored
        for name, value in read.values.items():
            if name not in read.defaulted:
                proxies.append((inner.id, name))
                values.append(value)
        entries = entries[taken:]
    return msgspec.structs.replace(
        node, inputs=renamed, proxies=tuple(proxies) or None, stored=values
    )


def _links(items: Any) -> Iterator[tuple[str, int, str, int]]:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, list) and len(item) >= 4 and all(isinstance(v, int) for v in item[:4]):
            origin, slot, target, target_slot = item[:4]
            yield str(origin), slot, str(target), target_slot


def _open_inputs(graph: UiGraph) -> Iterator[tuple[str, str, int]]:
    """Inner sockets that no inner link feeds: (name, node, index)."""
    for node in graph.nodes.values():
        for index, item in enumerate(node.inputs):
            if (node.id, index) not in graph.by_target and item.widget is None:
                yield f"{item.name} {node.id}", node.id, index


def _open_outputs(graph: UiGraph, external: Any) -> Iterator[tuple[str, str, int]]:
    """Inner outputs that no inner link uses, or that are shown all the same."""
    shown = {
        (_external_id(item[0]), item[1])
        for item in (external if isinstance(external, list) else ())
        if isinstance(item, list) and len(item) >= 2 and isinstance(item[1], int)
    }
    for node in graph.nodes.values():
        if node.type == REROUTE and not node.output_types:
            continue
        for index in range(len(node.output_types)):
            if (node.id, index) not in graph.by_origin or (node.id, index) in shown:
                yield f"{index} {node.id}", node.id, index


def _external_id(item: Any) -> str:
    if isinstance(item, dict):
        return str(item.get("index", item.get("id", "")))
    return str(item)


def _add(graph: UiGraph, link: UiLink) -> None:
    graph.links[link.id] = link
    graph.by_target.setdefault((link.target, link.target_slot), link)
    graph.by_origin.setdefault((link.origin, link.origin_slot), []).append(link)
