"""From a workflow in UI format to a prompt in API format.

Source: spec importer-rules.md; where frontends differ, what it recommends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .entries import Entry, EntryWriter, note_on
from .group_nodes import with_group_nodes
from .interface import NodeTable
from .notes import Converted, Note, NoteKind
from .resolve import COMMENTS, REROUTE, Resolver
from .scopes import PRIMITIVE, Scope, Scopes
from .texts import Choose, Date
from .ui_graph import BYPASSED, MUTED, read_document


def convert(
    workflow: Mapping[str, Any],
    table: NodeTable,
    *,
    choose: Choose = lambda count: 0,
    date: Date | None = None,
) -> Converted:
    """The prompt that a workflow in UI format stands for.

    Args:
        workflow: parsed JSON with `nodes`.
        table: the node classes that are known.
        choose: which of so many alternatives of a `{a|b}` in a text; the first by default.
        date: the local time in a pattern, for `%date:...%` in names of files; else they stay.

    Raises: WorkflowFileProblem: the file makes no sense, or is too large.
    """
    document = with_group_nodes(read_document(workflow), table)
    notes: list[Note] = list(document.notes)
    scopes = Scopes(document, table)
    resolver = Resolver(scopes)
    writer = EntryWriter(scopes, resolver, choose, date, notes.append)
    prompt: dict[str, Entry] = {}
    waiting = [scopes.root]
    while waiting:
        scope = waiting.pop()
        for node in scope.graph.nodes.values():
            if node.type in COMMENTS or node.type in (REROUTE, PRIMITIVE):
                continue
            if node.mode in (MUTED, BYPASSED):
                kind = NoteKind.MUTED if node.mode == MUTED else NoteKind.BYPASSED
                notes.append(note_on(kind, scope, node, f"{kind}: not run"))
            elif scopes.definition(node) is not None:
                child = scopes.child(scope, node)
                text = f"replaced by the {len(child.graph.nodes)} nodes of {child.names[-1]!r}"
                notes.append(note_on(NoteKind.FLATTENED, scope, node, text))
                waiting.append(child)
            else:
                prompt[f"{scope.path}{node.id}"] = writer.entry(scope, node)
    _drop_dangling(prompt)
    notes += [_circle(scope, link.id) for scope, link in resolver.circles]
    return Converted(prompt=prompt, notes=tuple(notes))


def _drop_dangling(prompt: dict[str, Entry]) -> None:
    """Remove links to nodes that have no entry."""
    for entry in prompt.values():
        inputs = entry["inputs"]
        lost = [
            name
            for name, value in inputs.items()
            if isinstance(value, list) and value[0] not in prompt
        ]
        for name in lost:
            del inputs[name]


def _circle(scope: Scope, link_id: str) -> Note:
    text = f"link {link_id} of {scope.graph.place} leads in a circle: cut"
    return Note(kind=NoteKind.DROPPED, text=text, node=scope.path.rstrip(":"), subgraph=scope.names)
