"""What a conversion says about a workflow file beside the prompt that it makes of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from ..errors import NodeloomError

Json = Any


class WorkflowFileProblem(NodeloomError):
    """A file that is no workflow, or one that can't be converted; the message says where."""

    code = "workflow_file_problem"


class NoteKind(StrEnum):
    """What happened to a part of the file."""

    FLATTENED = "flattened"  # a subgraph or group node was replaced by its inner nodes
    BYPASSED = "bypassed"
    MUTED = "muted"
    DROPPED = "dropped"  # a link, value or input that means nothing
    DEFAULTED = "defaulted"  # a value that was not in the file
    UNKNOWN = "unknown"  # a node class that is not known here
    RENAMED = "renamed"  # a class, or an id that two nodes had


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One remark.

    Args:
        node: the file's own id of the node, after those of the subgraph nodes that it lies in,
            joined by colons; empty: the file as a whole.
        subgraph: names of those subgraphs, outermost first.
        pack: where an unknown class comes from, if the file says so.
    """

    kind: NoteKind
    text: str
    node: str = ""
    class_type: str = ""
    subgraph: tuple[str, ...] = ()
    pack: str = ""


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt in API format, and how it came about."""

    prompt: dict[str, Json]
    notes: tuple[Note, ...] = ()

    @property
    def unknown(self) -> tuple[Note, ...]:
        """The nodes whose classes are not known here."""
        return tuple(note for note in self.notes if note.kind is NoteKind.UNKNOWN)
