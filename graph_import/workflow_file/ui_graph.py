"""A workflow file in UI format, taken apart: graphs of nodes and links, and subgraph definitions.

Nothing is looked up yet. Ids are texts here, as they become keys of the prompt.
Source: spec importer-rules.md, sections 1 to 4 and 8.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from .notes import Note, NoteKind, WorkflowFileProblem

MAX_NODES: Final = 250_000  # of a file, and of what its subgraphs become
MAX_LINKS: Final = 1_000_000
MAX_DEFINITIONS: Final = 10_000

INPUT_NODE: Final = "-10"  # where the links of a subgraph's inputs begin
OUTPUT_NODE: Final = "-20"  # where those of its outputs end
MUTED: Final = 2
BYPASSED: Final = 4
ANY: Final = "*"


class UiInput(msgspec.Struct, frozen=True):
    """An input as the file lists it; `widget` names the widget that it stands for."""

    name: str
    type: str
    link: str | None
    widget: str | None


class UiNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the file.

    Args:
        stored: `widgets_values`: a list, or by name; None: the file has none.
        proxies: `properties.proxyWidgets`: (inner node's id, widget); None: no such list.
    """

    id: str
    type: str
    mode: int
    title: str
    inputs: tuple[UiInput, ...]
    output_types: tuple[str, ...]
    stored: list[Any] | dict[str, Any] | None
    proxies: tuple[tuple[str, str], ...] | None
    properties: Mapping[str, Any]


class UiLink(msgspec.Struct, frozen=True):
    """A link of a graph's table."""

    id: str
    origin: str
    origin_slot: int
    target: str
    target_slot: int


@dataclass(slots=True)
class UiGraph:
    """Nodes by id and links by id, both in the file's order."""

    place: str
    nodes: dict[str, UiNode] = field(default_factory=dict)
    links: dict[str, UiLink] = field(default_factory=dict)
    by_target: dict[tuple[str, int], UiLink] = field(default_factory=dict)
    by_origin: dict[tuple[str, int], list[UiLink]] = field(default_factory=dict)

    def link_of(self, node: UiNode, index: int) -> UiLink | None:
        """The link that feeds input `index`: the table has the last word."""
        named = node.inputs[index].link
        if named is None:
            return self.by_target.get((node.id, index))
        link = self.links.get(named)
        return link if link is not None and link.target == node.id else None

    def input_of(self, link: UiLink) -> UiInput | None:
        """The input that a link feeds."""
        node = self.nodes.get(link.target)
        if node is None:
            return None
        named = next((item for item in node.inputs if item.link == link.id), None)
        if named is None and 0 <= link.target_slot < len(node.inputs):
            named = node.inputs[link.target_slot]
        return named


@dataclass(slots=True)
class Definition:
    """A subgraph: its graph, and its inputs and outputs as (name, ids of their links)."""

    id: str
    name: str
    graph: UiGraph
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    output_names: tuple[str, ...]


@dataclass(slots=True)
class UiDocument:
    """A whole file."""

    root: UiGraph
    definitions: dict[str, Definition]
    group_nodes: Mapping[str, Any]
    notes: list[Note] = field(default_factory=list)


def read_document(data: Mapping[str, Any]) -> UiDocument:
    """Take a UI workflow apart. Raises: WorkflowFileProblem."""
    if not isinstance(data, Mapping):
        raise WorkflowFileProblem("the workflow is no JSON object")
    extra = data.get("extra")
    group_nodes = extra.get("groupNodes") if isinstance(extra, dict) else None
    document = UiDocument(
        root=UiGraph("the workflow"),
        definitions={},
        group_nodes=group_nodes if isinstance(group_nodes, dict) else {},
    )
    read_graph(data, document.root, document.notes)
    definitions = data.get("definitions")
    subgraphs = definitions.get("subgraphs") if isinstance(definitions, dict) else None
    num_nodes = len(document.root.nodes)
    for index, item in enumerate(_list(subgraphs, "definitions.subgraphs")):
        definition = _definition(item, f"definitions.subgraphs[{index}]", document.notes)
        document.definitions[definition.id] = definition
        num_nodes += len(definition.graph.nodes)
        if index >= MAX_DEFINITIONS or num_nodes > MAX_NODES:
            raise WorkflowFileProblem(
                f"the file has more than {MAX_NODES} nodes or {MAX_DEFINITIONS} subgraphs"
            )
    return document


def read_graph(data: Mapping[str, Any], graph: UiGraph, notes: list[Note]) -> None:
    """Fill `graph` with the nodes and links of `data`. Raises: WorkflowFileProblem."""
    nodes = _list(data.get("nodes"), f"nodes of {graph.place}")
    if len(nodes) > MAX_NODES:
        raise WorkflowFileProblem(f"{graph.place} has {len(nodes)} nodes; {MAX_NODES} at most")
    numbers = itertools.count(2)
    for index, item in enumerate(nodes):
        if item is None:
            continue
        if not isinstance(item, dict):
            raise WorkflowFileProblem(f"nodes[{index}] of {graph.place} is no object")
        _add_node(graph, _node(item, f"nodes[{index}] of {graph.place}"), numbers, notes)
    for link in _links(data.get("links"), graph.place):
        graph.links[link.id] = link
        graph.by_target.setdefault((link.target, link.target_slot), link)
        graph.by_origin.setdefault((link.origin, link.origin_slot), []).append(link)


def _add_node(graph: UiGraph, node: UiNode, numbers: Iterator[int], notes: list[Note]) -> None:
    if node.id in graph.nodes:
        candidates = (f"{node.id}-{number}" for number in numbers)
        fresh = next(id_ for id_ in candidates if id_ not in graph.nodes)
        text = f"two nodes of {graph.place} have the id {node.id}; the later one is {fresh} now"
        notes.append(Note(kind=NoteKind.RENAMED, text=text, node=fresh, class_type=node.type))
        node = msgspec.structs.replace(node, id=fresh)
    graph.nodes[node.id] = node


def _definition(item: Any, place: str, notes: list[Note]) -> Definition:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str | int):
        raise WorkflowFileProblem(f"{place} is no subgraph with an id")
    name = str(item.get("name") or item["id"])
    graph = UiGraph(f"subgraph {name!r}")
    read_graph(item, graph, notes)
    return Definition(
        id=str(item["id"]),
        name=name,
        graph=graph,
        inputs=tuple(_slots(item.get("inputs"), f"inputs of {graph.place}")),
        output_names=tuple(
            name for name, _ in _slots(item.get("outputs"), f"outputs of {graph.place}")
        ),
    )


def _slots(items: Any, place: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for item in _list(items, place):
        slot = item if isinstance(item, dict) else {}
        link_ids = slot.get("linkIds")
        ids = link_ids if isinstance(link_ids, list) else []
        yield str(slot.get("name", "")), tuple(_id(i) for i in ids if isinstance(i, str | int))


def _node(item: dict[str, Any], place: str) -> UiNode:
    number, type_ = item.get("id"), item.get("type")
    if not isinstance(number, str | int | float) or isinstance(number, bool):
        raise WorkflowFileProblem(f"{place} has no id")
    if not isinstance(type_, str):
        raise WorkflowFileProblem(f"{place} (id {number}) has no type")
    mode, title, stored = item.get("mode"), item.get("title"), item.get("widgets_values")
    if stored is None:
        stored = item.get("widgets_values_named")
    properties = item.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    outputs = item.get("outputs")
    return UiNode(
        id=_id(number),
        type=type_,
        mode=mode if isinstance(mode, int) else 0,
        title=title if isinstance(title, str) else "",
        inputs=tuple(_inputs(item.get("inputs"))),
        output_types=tuple(
            _type(output.get("type")) if isinstance(output, dict) else ANY
            for output in (outputs if isinstance(outputs, list) else ())
        ),
        stored=stored if isinstance(stored, list | dict) else None,
        proxies=_proxies(properties.get("proxyWidgets")),
        properties=properties,
    )


def _inputs(items: Any) -> Iterator[UiInput]:
    for item in items if isinstance(items, list) else ():
        slot = item if isinstance(item, dict) else {}
        widget, link = slot.get("widget"), slot.get("link")
        name = widget.get("name") if isinstance(widget, dict) else None
        yield UiInput(
            str(slot.get("name", "")),
            _type(slot.get("type")),
            _id(link) if isinstance(link, str | int | float) else None,
            None if name is None else str(name),
        )


def _proxies(items: Any) -> tuple[tuple[str, str], ...] | None:
    if not isinstance(items, list) or not items:
        return None
    pairs = (item if isinstance(item, list) and len(item) >= 2 else ("", "") for item in items)
    return tuple((str(pair[0]), str(pair[1])) for pair in pairs)


def _links(items: Any, place: str) -> Iterator[UiLink]:
    if isinstance(items, dict):
        items = list(items.values())
    items = items if isinstance(items, list) else []
    if len(items) > MAX_LINKS:
        raise WorkflowFileProblem(f"{place} has {len(items)} links; {MAX_LINKS} at most")
    for item in items:
        if isinstance(item, dict):
            keys = ("id", "origin_id", "origin_slot", "target_id", "target_slot")
            values: list[Any] = [item.get(key) for key in keys]
        elif isinstance(item, list) and len(item) >= 5:
            values = item[:5]
        else:
            continue
        number, origin, slot, target, target_slot = values
        if all(isinstance(value, str | int | float) for value in (number, origin, target)):
            yield UiLink(_id(number), _id(origin), _slot(slot), _id(target), _slot(target_slot))


def _id(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _slot(value: Any) -> int:
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 9 else 0


def _type(value: Any) -> str:
    """A type by its name; old files have 0 and -1 for any, and lists of choices."""
    if isinstance(value, str):
        return value
    return "COMBO" if isinstance(value, list) else ANY


def _list(items: Any, place: str) -> list[Any]:
    if items is None:
        return []
    if not isinstance(items, list):
        raise WorkflowFileProblem(f"{place} is no list")
    return items
