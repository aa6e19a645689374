"""Where an input's value comes from: links followed through everything that has no entry.

Source: spec importer-rules.md, sections 7, 7.2 and 8.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .scopes import MISSING, PRIMITIVE, Scope, Scopes
from .ui_graph import ANY, BYPASSED, INPUT_NODE, MUTED, OUTPUT_NODE, UiLink, UiNode

REROUTE: Final = "Reroute"
COMMENTS: Final = frozenset({"Note", "MarkdownNote"})


@dataclass(slots=True, frozen=True)
class LinkTo:
    """An output of a node that has an entry: its key in the prompt, and the slot."""

    key: str
    slot: int


@dataclass(slots=True, frozen=True)
class Sent:
    """A value that a subgraph node sends to an input inside."""

    value: Any


Source = LinkTo | Sent | None
_Hop = tuple[Scope, UiLink]


class Resolver:
    """Follows links; each is followed once."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._known: dict[tuple[int, str], Source] = {}
        self._stand_ins: dict[tuple[int, str], StandIns] = {}
        self.circles: list[tuple[Scope, UiLink]] = []

    def input_source(self, scope: Scope, node: UiNode, index: int) -> Source:
        """What feeds input `index`; None: nothing, so a widget keeps its own value."""
        link = scope.graph.link_of(node, index)
        return None if link is None else self._follow(scope, link)

    def _follow(self, scope: Scope, link: UiLink) -> Source:
        trail: list[tuple[tuple[int, str], bool]] = []
        walked: set[tuple[int, str]] = set()
        found: Source = None
        while True:
            key = (id(scope), link.id)
            if key in self._known:
                found = self._known[key]
                break
            if key in walked:
                self.circles.append((scope, link))
                break
            walked.add(key)
            step, keeps_values = self._step(scope, link)
            trail.append((key, keeps_values))
            if not isinstance(step, tuple):
                found = step
                break
            scope, link = step
        for key, keeps_values in reversed(trail):
            if isinstance(found, Sent) and not keeps_values:
                found = None
            self._known[key] = found
        return found

    def _step(self, scope: Scope, link: UiLink) -> tuple[_Hop | Source, bool]:
        """One hop: the next link, or the end; and whether a value that is sent in passes."""
        if link.origin == INPUT_NODE and scope.definition is not None:
            return self._outwards(scope, link), True
        node = scope.graph.nodes.get(link.origin)
        if node is None or node.type in COMMENTS or node.type == PRIMITIVE:
            return None, True
        if node.mode == MUTED:
            return None, True
        if node.type == REROUTE:
            return _hop(scope, node, 0), False
        if node.mode == BYPASSED:
            key = (id(scope), node.id)
            if key not in self._stand_ins:
                self._stand_ins[key] = StandIns(node)
            index = self._stand_ins[key].of(link.origin_slot)
            return (None if index is None else _hop(scope, node, index)), False
        if self._scopes.definition(node) is not None:
            child = self._scopes.child(scope, node)
            ends = (
                inner
                for inner in child.graph.links.values()
                if inner.target == OUTPUT_NODE and inner.target_slot == link.origin_slot
            )
            inner = child.graph.by_target.get((OUTPUT_NODE, link.origin_slot)) or next(ends, None)
            return (None if inner is None else (child, inner)), False
        return LinkTo(f"{scope.path}{node.id}", link.origin_slot), True

    def _outwards(self, scope: Scope, link: UiLink) -> _Hop | Source:
        """From inside a subgraph to its node's input."""
        definition, host, parent = scope.definition, scope.host, scope.parent
        if definition is None or host is None or parent is None:
            return None
        if not 0 <= link.origin_slot < len(definition.inputs):
            return None
        name = definition.inputs[link.origin_slot][0]
        index = next((i for i, item in enumerate(host.inputs) if item.name == name), None)
        if index is not None:
            outer = parent.graph.link_of(host, index)
            if outer is not None and not self._is_primitive(parent, outer):
                return parent, outer
        value = self._scopes.own_value(parent, host, name)
        return None if value is MISSING else Sent(value)

    @staticmethod
    def _is_primitive(scope: Scope, link: UiLink) -> bool:
        """Whether the link only says into which widget a primitive node writes."""
        origin = scope.graph.nodes.get(link.origin)
        return origin is not None and origin.type == PRIMITIVE


class StandIns:
    """Which inputs of a bypassed node take the place of its outputs; each type is looked up once.

    Args:
        node: its inputs and outputs as the file lists them.
    """

    def __init__(self, node: UiNode) -> None:
        self._node = node
        self._by_type: dict[str, int] = {}
        self._by_member: dict[str, int] = {}
        for index, item in enumerate(node.inputs):
            self._by_type.setdefault(item.type, index)
            for member in item.type.split(","):
                self._by_member.setdefault(member, index)

    def of(self, slot: int) -> int | None:
        """The input for output `slot`; None: there is none that fits."""
        inputs, types = self._node.inputs, self._node.output_types
        type_ = types[slot] if 0 <= slot < len(types) else ANY
        if 0 <= slot < len(inputs) and _fits(inputs[slot].type, type_):
            return slot
        if type_ in self._by_type:
            return self._by_type[type_]
        if type_ == ANY:
            return 0 if inputs else None
        found = [self._by_member[m] for m in type_.split(",") if m in self._by_member]
        found += [self._by_type[ANY]] if ANY in self._by_type else []
        return min(found, default=None)


def _fits(one: str, other: str) -> bool:
    if one == other or ANY in (one, other):
        return True
    return not set(one.split(",")).isdisjoint(other.split(","))


def _hop(scope: Scope, node: UiNode, index: int) -> _Hop | None:
    link = scope.graph.link_of(node, index) if index < len(node.inputs) else None
    return None if link is None else (scope, link)
