"""One way in for every workflow: JSON in either format, or a picture that carries one.

All doors use it: `POST /prompt`, `POST /nodeloom/convert`, the page, and the command line.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from ..graph_import.workflow_file import (
    NodeTable,
    Note,
    WorkflowFileProblem,
    convert,
    parse_text,
    recognise,
)
from .embedded import embedded, is_picture

Json = dict[str, Any]
_DATE_PART: Final = re.compile(r"yyyy|yy|MM|M|dd|d|hh|h|mm|m|ss|s")


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that was opened.

    Args:
        prompt: in API format.
        workflow: the graph in UI format that came with it, for pictures to carry; None: none came.
        notes: what was made of the file.
    """

    prompt: Json
    workflow: Json | None = None
    notes: tuple[Note, ...] = ()

    @property
    def explained(self) -> str:
        """What is to be said of node classes that are not known, one line each."""
        return "\n".join(_unknown(note) for note in self.notes if note.kind == "unknown")


def open_bytes(data: bytes, table: Callable[[], NodeTable]) -> Opened:
    """The workflow in a file's bytes.

    A picture's `prompt` is what was run, after chance had its way, so it goes before `workflow`.

    Args:
        table: gives the node classes that are known, where they are needed.

    Raises: NoWorkflow, WorkflowFileProblem.
    """
    if not is_picture(data):
        return open_document(parse_text(data), table)
    texts = embedded(data)
    workflow = _quietly(texts.get("workflow"))
    prompt = _quietly(texts.get("prompt"))
    if prompt is None and workflow is None:
        raise WorkflowFileProblem("the workflow in the picture is not JSON")
    found = recognise(workflow if prompt is None else prompt)
    if found.prompt is None:
        return open_document(found.workflow, table)
    return Opened(prompt=found.prompt, workflow=workflow if isinstance(workflow, dict) else None)


def open_document(document: object, table: Callable[[], NodeTable]) -> Opened:
    """The workflow in a JSON document. Raises: WorkflowFileProblem."""
    found = recognise(document)
    if found.workflow is None:
        return Opened(prompt=found.prompt or {})
    converted = convert(
        found.workflow,
        table(),
        choose=random.randrange,
        date=local_date,
    )
    return Opened(prompt=converted.prompt, workflow=found.workflow, notes=converted.notes)


def is_ui_format(document: object) -> bool:
    """Whether a JSON document is a graph in UI format."""
    return isinstance(document, Mapping) and isinstance(document.get("nodes"), list)


def local_date(pattern: str) -> str:
    """The local time in a pattern of ComfyUI's page, such as `yyyy-MM-dd`."""
    now = datetime.now()
    parts = {"yyyy": f"{now.year:04}", "yy": f"{now.year % 100:02}"}
    numbers = {"M": now.month, "d": now.day, "h": now.hour, "m": now.minute, "s": now.second}
    for letter, number in numbers.items():
        parts |= {letter: str(number), letter * 2: f"{number:02}"}
    return _DATE_PART.sub(lambda found: parts[found.group()], pattern)


def _quietly(text: str | None) -> Any:
    """A text as JSON; None: there is none, or it isn't."""
    try:
        return None if text is None else parse_text(text)
    except WorkflowFileProblem:
        return None


def _unknown(note: Note) -> str:
    where = f" in subgraph {' > '.join(note.subgraph)}" if note.subgraph else ""
    pack = f" (from the pack {note.pack})" if note.pack else ""
    return f"node {note.node}{where}: {note.class_type}{pack} is not known here"
