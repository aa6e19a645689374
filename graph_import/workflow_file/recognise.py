"""What kind of workflow a JSON document is: a prompt in API format, or a graph in UI format.

Source: spec importer-rules.md, sections 1 and 14.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from .notes import WorkflowFileProblem

MAX_WRAPPERS: Final = 4


class WorkflowFile(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was recognised; one of both is there.

    Args:
        prompt: in API format, as it was.
        workflow: in UI format, as it was.
    """

    prompt: dict[str, Any] | None = None
    workflow: dict[str, Any] | None = None


def parse_text(text: str | bytes) -> Any:
    """The JSON document in a text; NaN and infinities become null, a byte order mark is skipped.

    Raises: WorkflowFileProblem.
    """
    try:
        decoded = (
            text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
        )
        found = json.loads(decoded, parse_constant=lambda _: None)
        return json.loads(found, parse_constant=lambda _: None) if isinstance(found, str) else found
    except UnicodeDecodeError as problem:
        raise WorkflowFileProblem(
            "the file is neither a picture that is known nor text"
        ) from problem
    except RecursionError as problem:
        raise WorkflowFileProblem("the JSON is nested too deeply") from problem
    except ValueError as problem:
        raise WorkflowFileProblem(f"not JSON: {problem}") from problem


def recognise(document: Any) -> WorkflowFile:
    """The workflow in a document, or in the request that one was saved with.

    Raises: WorkflowFileProblem: it is neither.
    """
    for _ in range(MAX_WRAPPERS):
        if not isinstance(document, dict):
            break
        if isinstance(document.get("nodes"), list):
            return WorkflowFile(workflow=document)
        if is_prompt(document):
            return WorkflowFile(prompt=document)
        inner = _unwrapped(document)
        if inner is None:
            break
        document = parse_text(inner) if isinstance(inner, str) else inner
    raise WorkflowFileProblem(
        "neither a workflow (an object with a list of nodes) nor a prompt in API format (every "
        "value an object with class_type and inputs)"
    )


def is_prompt(document: Mapping[str, Any]) -> bool:
    """Whether it has a node of a prompt; what else is in it, validation says."""
    return any(isinstance(node, dict) and "class_type" in node for node in document.values())


def _unwrapped(document: Mapping[str, Any]) -> Any:
    """What tools wrap workflows in; the workflow before the prompt that was made of it."""
    extra = document.get("extra_data")
    pnginfo = extra.get("extra_pnginfo") if isinstance(extra, dict) else None
    nested = pnginfo.get("workflow") if isinstance(pnginfo, dict) else None
    return document.get("workflow") or document.get("prompt") or nested
