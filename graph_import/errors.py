"""The root of the error tree, and what importing a workflow may raise.

`runtime/errors.py` draws the rest of the tree. An error carries a stable `code` for programs, a
message for people and JSON-able `details`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class NodeloomError(Exception):
    """Root of every error that nodeloom raises on purpose."""

    code = "nodeloom_error"

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, object] = details


class ImportProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong with one node, in the shape of ComfyUI's `node_errors` entries.

    Source: spec comfyui-api/validation.md, sections 1 and 2.
    """

    node_id: str
    class_type: str
    type: str
    message: str
    details: str
    extra_info: dict[str, object]


class ImportRejected(NodeloomError):
    """A prompt that can't be run; carries all its problems, not the first (HTTP 400)."""

    code = "import_rejected"

    def __init__(
        self,
        type_: str,
        message: str,
        details: str = "",
        *,
        problems: Sequence[ImportProblem] = (),
        dependent_outputs: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(message, text=details)
        self.type = type_
        self.text = details
        self.problems = tuple(problems)
        self.dependent_outputs = dict(dependent_outputs or {})


class ModelFileProblem(NodeloomError):
    """A model or picture file that is missing, truncated, refused or of no known family."""

    code = "model_file_problem"


class GraphBroken(NodeloomError):
    """A Graph breaks a rule of `passes/verify.py`: our bug, never the client's."""

    code = "graph_broken"
