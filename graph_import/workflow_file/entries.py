"""Prompt entries: a node's values and links under the names that its class declares.

Source: spec importer-rules.md, sections 4, 6.5, 9 and 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .notes import Note, NoteKind
from .resolve import LinkTo, Resolver, Sent, Source
from .scopes import MISSING, Scope, Scopes, class_of
from .texts import SAVERS, Choose, Date, chosen, file_name
from .ui_graph import UiInput, UiNode
from .widgets import Widgets

Entry = dict[str, Any]


class EntryWriter:
    """Writes entries, and notes on what they could not take along."""

    def __init__(
        self,
        scopes: Scopes,
        resolver: Resolver,
        choose: Choose,
        date: Date | None,
        note: Callable[[Note], None],
    ) -> None:
        self._scopes = scopes
        self._resolver = resolver
        self._choose = choose
        self._date = date
        self._note = note
        self._typed: dict[tuple[str, str], object] | None = None

    def entry(self, scope: Scope, node: UiNode) -> Entry:
        """The entry of an active node."""
        sources = [
            (item, self._resolver.input_source(scope, node, index))
            for index, item in enumerate(node.inputs)
        ]
        sent = {
            item.widget or item.name: source.value
            for item, source in sources
            if isinstance(source, Sent)
        }
        widgets = self._scopes.widgets(scope, node, sent)
        if widgets is None:
            return self._unknown(scope, node, sources)
        inputs = self._values(scope, node, widgets, sent)
        for item, source in sources:
            self._put_link(scope, node, widgets, item, source, inputs)
        if widgets.defaulted:
            text = "not in the file, so the default: " + ", ".join(widgets.defaulted)
            self._note(note_on(NoteKind.DEFAULTED, scope, node, text))
        interface = self._scopes.table.get(class_of(node))
        title = node.title or (interface.display_name if interface else class_of(node))
        return {"class_type": class_of(node), "inputs": inputs, "_meta": {"title": title}}

    def _values(
        self, scope: Scope, node: UiNode, widgets: Widgets, sent: Mapping[str, Any]
    ) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in widgets.values.items():
            if value is None or value is MISSING:
                continue
            is_own = name not in sent and (node.id, name) not in scope.promoted
            if (
                is_own
                and isinstance(value, str)
                and widgets.specs[name].options.get("dynamicPrompts")
            ):
                value = chosen(value, self._choose)
            values[name] = _as_value(value)
        prefix = values.get("filename_prefix")
        if isinstance(prefix, str) and "%" in prefix and class_of(node) in SAVERS:
            values["filename_prefix"] = file_name(prefix, self._date, self._typed_values())
        return values

    def _typed_values(self) -> dict[tuple[str, str], object]:
        """Values of the whole workflow's nodes by class or title; the first node has the name."""
        if self._typed is not None:
            return self._typed
        typed = self._typed = {}
        root = self._scopes.root
        by_class = [(_script_name(node), node) for node in root.graph.nodes.values()]
        by_title = [(node.title, node) for node in root.graph.nodes.values()]
        for name, node in (*by_class, *by_title):
            read = self._scopes.widgets(root, node, {}) if name else None
            for widget, value in (read.values if read else {}).items():
                typed.setdefault((name, widget), value)
        return typed

    def _put_link(
        self,
        scope: Scope,
        node: UiNode,
        widgets: Widgets,
        item: UiInput,
        source: Source,
        inputs: dict[str, Any],
    ) -> None:
        if source is None:
            return
        name = item.name
        if not widgets.declares(name):
            is_lost = widgets.is_of_other_branch(name) or (
                item.widget is not None and item.widget not in widgets.values
            )
            if is_lost or isinstance(source, Sent):
                text = f"{class_of(node)} has no input {name!r}: left out"
                self._note(note_on(NoteKind.DROPPED, scope, node, text))
                return
        match source:
            case LinkTo(key=key, slot=slot):
                inputs[name] = [key, slot]
            case Sent(value=value) if name not in widgets.values and value is not None:
                inputs[name] = _as_value(value)
            case _:
                pass

    def _unknown(self, scope: Scope, node: UiNode, sources: list[tuple[UiInput, Source]]) -> Entry:
        """An entry that validation will name: its links are right, its values are not known."""
        class_type = class_of(node)
        inputs = {
            item.name: [source.key, source.slot]
            for item, source in sources
            if isinstance(source, LinkTo)
        }
        if isinstance(node.stored, dict):
            inputs |= {k: _as_value(v) for k, v in node.stored.items() if k not in inputs}
        text = f"node class {class_type!r} is not known here"
        self._note(note_on(NoteKind.UNKNOWN, scope, node, text, pack=pack_of(node)))
        return {
            "class_type": class_type,
            "inputs": inputs,
            "_meta": {"title": node.title or class_type},
        }


def note_on(kind: NoteKind, scope: Scope, node: UiNode, text: str, pack: str = "") -> Note:
    """A note on one node."""
    return Note(
        kind=kind,
        text=text,
        node=f"{scope.path}{node.id}",
        class_type=class_of(node),
        subgraph=scope.names,
        pack=pack,
    )


def pack_of(node: UiNode) -> str:
    """The pack of custom nodes that a node's class comes from, if the file says so."""
    for key in ("cnr_id", "aux_id"):
        name = node.properties.get(key)
        if isinstance(name, str) and name:
            version = node.properties.get("ver")
            return f"{name} {version}" if isinstance(version, str) and version else name
    return ""


def _as_value(value: Any) -> Any:
    """A list is wrapped, or it would be taken for a link."""
    return {"__value__": value} if isinstance(value, list) else value


def _script_name(node: UiNode) -> str:
    name = node.properties.get("Node name for S&R")
    return name if isinstance(name, str) and name else node.type
