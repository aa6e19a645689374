"""Graphs where they stand: the workflow, and each subgraph node's own copy of its definition.

A copy knows the values that its host sends in. There are three generations of files, which keep
such values in different places. Source: spec importer-rules.md, sections 7.3 and 8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .interface import NodeTable
from .notes import WorkflowFileProblem
from .ui_graph import INPUT_NODE, MAX_NODES, Definition, UiDocument, UiGraph, UiLink, UiNode
from .widgets import Widgets, read_widgets

PRIMITIVE: Final = "PrimitiveNode"
OWN: Final = "-1"  # in proxyWidgets: a widget of the host itself
MAX_DEPTH: Final = 100  # of subgraphs in subgraphs
MISSING: Final = object()  # no value, where None may be one
_NESTED: Final = re.compile(r"(-?\w+): (.+)", re.DOTALL)
_OLD_NAMES: Final = {
    "T2IAdapterLoader": "ControlNetLoader",
    "ConditioningAverage ": "ConditioningAverage",
    "SDV_img2vid_Conditioning": "SVD_img2vid_Conditioning",
}
_UNSAFE: Final = str.maketrans("", "", "&<>\"'`=")

Place = tuple[str, str]  # a node's id in its graph, and the name of a widget


def class_of(node: UiNode) -> str:
    """The name of a node's class today."""
    return _OLD_NAMES.get(node.type, node.type.translate(_UNSAFE))


@dataclass(slots=True, eq=False)
class Scope:
    """A graph where it stands.

    Args:
        path: the ids on the way down, each with a colon after it.
        names: of the subgraphs on the way down.
        overrides: values of widgets in here that were set further out.
        pushes: values that primitive nodes write into inputs.
        promoted: widgets that are shown further out.
    """

    graph: UiGraph
    path: str = ""
    names: tuple[str, ...] = ()
    parent: Scope | None = None
    host: UiNode | None = None
    definition: Definition | None = None
    overrides: dict[Place, Any] = field(default_factory=dict)
    pushes: dict[Place, Any] = field(default_factory=dict)
    promoted: frozenset[Place] = frozenset()
    depth: int = 0
    children: dict[str, Scope] = field(default_factory=dict)
    own_values: dict[str, dict[str, Any]] = field(default_factory=dict)


class Scopes:
    """Makes scopes, and knows the widgets and values in them."""

    def __init__(self, document: UiDocument, table: NodeTable) -> None:
        self.document = document
        self.table = table
        self.root = Scope(document.root)
        _push(self.root)
        self._num_nodes = len(document.root.nodes)
        self._fed: dict[str, dict[str, list[Place]]] = {}

    def definition(self, node: UiNode) -> Definition | None:
        """The subgraph that a node stands for; None: it is an ordinary node."""
        return self.document.definitions.get(node.type)

    def child(self, scope: Scope, host: UiNode) -> Scope:
        """A subgraph node's copy of its definition. Raises: WorkflowFileProblem."""
        known = scope.children.get(host.id)
        if known is not None:
            return known
        definition = self.document.definitions[host.type]
        self._check(scope, definition)
        stored, inner = self._assigned(scope, host, definition)
        child = Scope(
            definition.graph,
            path=f"{scope.path}{host.id}:",
            names=(*scope.names, definition.name),
            parent=scope,
            host=host,
            definition=definition,
            overrides=inner,
            promoted=frozenset(
                [place for places in self.fed(definition).values() for place in places]
                + list(host.proxies or ())
            ),
            depth=scope.depth + 1,
        )
        _push(child)
        scope.children[host.id] = child
        scope.own_values[host.id] = stored
        return child

    def own_value(self, scope: Scope, host: UiNode, name: str) -> Any:
        """What a subgraph node's widget `name` sends in; MISSING: it has no such widget."""
        definition = self.document.definitions[host.type]
        places = self.fed(definition).get(name)
        if not places:
            return MISSING
        child = self.child(scope, host)
        stored = scope.own_values[host.id]
        if name not in stored:
            inner, widget = places[0]
            node = child.graph.nodes[inner]
            if self.definition(node) is not None:
                stored[name] = self.own_value(child, node, widget)
            else:
                stored[name] = self.stored_value(child, node, widget)
        return stored[name]

    def stored_value(self, scope: Scope, node: UiNode, widget: str) -> Any:
        """A widget's value without what comes in from outside; MISSING: there is none."""
        read = self.widgets(scope, node, {})
        if read is not None:
            return read.values.get(widget, MISSING)
        if isinstance(node.stored, dict):
            return node.stored.get(widget, MISSING)
        return MISSING

    def widgets(self, scope: Scope, node: UiNode, sent: Mapping[str, Any]) -> Widgets | None:
        """A node's widgets and values; None: its class is not known.

        Args:
            sent: values that come in from outside, by widget.
        """
        interface = self.table.get(class_of(node))
        if interface is None:
            return None
        forced = dict(sent)
        for values in (scope.overrides, scope.pushes):
            if values:
                forced |= {w: v for (id_, w), v in values.items() if id_ == node.id}
        forced |= sent
        return read_widgets(interface, node.stored, forced)

    def fed(self, definition: Definition) -> dict[str, list[Place]]:
        """The widgets inside that each input of a subgraph feeds; those inputs are its widgets."""
        if definition.id not in self._fed:
            self._fed[definition.id] = {}  # one that contains itself feeds nothing there
            fed: dict[str, list[Place]] = {}
            for slot, (name, link_ids) in enumerate(definition.inputs):
                places = list(self._places(definition.graph, slot, link_ids))
                if places:
                    fed[name] = places
            self._fed[definition.id] = fed
        return self._fed[definition.id]

    def _places(self, graph: UiGraph, slot: int, link_ids: tuple[str, ...]) -> Iterator[Place]:
        links = [graph.links[i] for i in link_ids if i in graph.links]
        for link in links or graph.by_origin.get((INPUT_NODE, slot), []):
            place = self._widget_at(graph, link)
            if place is not None:
                yield place

    def _widget_at(self, graph: UiGraph, link: UiLink) -> Place | None:
        """The widget that a link feeds, if it is one."""
        item, node = graph.input_of(link), graph.nodes.get(link.target)
        if item is None or node is None:
            return None
        inner = self.definition(node)
        if inner is not None:
            return (node.id, item.name) if item.name in self.fed(inner) else None
        interface = self.table.get(class_of(node))
        if interface is None:  # as on ComfyUI's page, a class that is not known has no widgets
            return None
        name = item.widget or item.name
        return (node.id, name) if name in read_widgets(interface, node.stored).values else None

    def _assigned(
        self, scope: Scope, host: UiNode, definition: Definition
    ) -> tuple[dict[str, Any], dict[Place, Any]]:
        """The values that a host stores: of its own widgets, and of widgets inside."""
        fed = self.fed(definition)
        feeders = {place: name for name, places in fed.items() for place in places}
        stored: dict[str, Any] = {}
        inner: dict[Place, Any] = {}
        entries = host.stored if isinstance(host.stored, list) else []
        if host.proxies is not None:
            for place, value in zip(host.proxies, entries, strict=False):
                self._assign(place, value, fed, feeders, stored, inner)
        elif isinstance(host.stored, dict):
            stored = {n: v for n, v in host.stored.items() if n in fed and v is not None}
        else:
            pairs = zip(fed, entries, strict=False)
            stored = {name: value for name, value in pairs if value is not None}
        for values in (scope.overrides, scope.pushes):
            for (id_, name), value in values.items():
                if id_ == host.id:
                    place = (OWN, name) if name in fed else _inner_place(host, name)
                    self._assign(place, value, fed, feeders, stored, inner)
        return stored, inner

    @staticmethod
    def _assign(
        place: Place,
        value: Any,
        fed: Mapping[str, list[Place]],
        feeders: Mapping[Place, str],
        stored: dict[str, Any],
        inner: dict[Place, Any],
    ) -> None:
        if value is None:
            return
        if place[0] == OWN:
            if place[1] in fed:
                stored[place[1]] = value
        elif place in feeders:
            stored[feeders[place]] = value
        else:
            inner[place] = value

    def _check(self, scope: Scope, definition: Definition) -> None:
        around: Scope | None = scope
        while around is not None:
            if around.definition is definition:
                raise WorkflowFileProblem(
                    f"subgraph {definition.name!r} contains itself ({scope.path or 'root'})"
                )
            around = around.parent
        self._num_nodes += len(definition.graph.nodes)
        if scope.depth >= MAX_DEPTH:
            raise WorkflowFileProblem(
                f"subgraph {definition.name!r} lies more than {MAX_DEPTH} subgraphs deep"
            )
        if self._num_nodes > MAX_NODES:
            raise WorkflowFileProblem(f"subgraphs become more than {MAX_NODES} nodes")


def _inner_place(host: UiNode, name: str) -> Place:
    """Where a widget of a host is that is shown further out again."""
    nested = _NESTED.fullmatch(name)
    if nested:
        return nested.group(1), nested.group(2)
    return next((place for place in host.proxies or () if place[1] == name), ("", name))


def _push(scope: Scope) -> None:
    """Let the primitive nodes of a scope write into what they are linked to."""
    graph = scope.graph
    for node in graph.nodes.values():
        if node.type != PRIMITIVE:
            continue
        set_outside = [v for (id_, _), v in scope.overrides.items() if id_ == node.id]
        entries = node.stored if isinstance(node.stored, list) else []
        if not set_outside and not entries:
            continue
        value = set_outside[0] if set_outside else entries[0]
        for link in graph.by_origin.get((node.id, 0), ()):
            item = graph.input_of(link)
            if item is not None:
                scope.pushes[link.target, item.widget or item.name] = value
