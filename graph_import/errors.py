"""The root of the error tree, and what importing a workflow may raise.

`runtime/errors.py` draws the rest of the tree. An error carries a stable `code` for programs, a
message for people and JSON-able `details`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

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


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a workflow's Python text."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Fault(StrEnum):
    """What can be wrong with a workflow that is written in Python."""

    WRONG_TYPE = "wrong_type"
    WRONG_VALUE = "wrong_value"  # the type is right, the value is not allowed
    MISSING_INPUT = "missing_input"
    UNKNOWN_INPUT = "unknown_input"
    DUPLICATE_NAME = "duplicate_name"
    FOREIGN_VALUE = "foreign_value"  # of another workflow
    UNUSED_MODEL = "unused_model"
    NO_OUTPUT = "no_output"
    NO_SCOPE = "no_scope"  # not inside a workflow, or inside two
    USED_AS_DATA = "used_as_data"  # a placeholder where Python needs a value
    NEEDS_VALUE = "needs_value"  # a structural input without value and default
    CYCLE = "cycle"  # a workflow that contains itself
    TOO_LARGE = "too_large"
    BAD_MODEL = "bad_model"  # a model class of a user's own that can't be a node
    FAILED = "failed"  # the Python text itself raised


class CompositionError(NodeloomError):
    """A workflow in Python that makes no sense, at the line that says so.

    `details` hold fault, file, line, and (of types) expected and received.
    """

    code = "composition_error"

    def __init__(self, message: str, fault: Fault, place: Place, **details: object) -> None:
        super().__init__(
            f"{place}: {message}", fault=str(fault), file=place.file, line=place.line, **details
        )
        self.fault = fault
        self.place = place


class InvocationProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a workflow can't run with the values that it was given.

    Args:
        input: the workflow's input that is to blame, if one is.
        place: the line of the workflow that the value reaches, if it gets that far.
    """

    input: str | None
    reason: str
    place: Place | None = None


class InvocationRejected(NodeloomError):
    """A workflow was given values that it can't run with; carries all problems, not the first."""

    code = "invocation_rejected"

    def __init__(self, workflow: str, problems: Sequence[InvocationProblem]) -> None:
        lines = [f"{p.input}: {p.reason}" if p.input else p.reason for p in problems]
        super().__init__(
            f"{workflow}: " + "; ".join(lines),
            workflow=workflow,
            problems=msgspec.to_builtins(problems),
        )
        self.problems = tuple(problems)


class ModelFileProblem(NodeloomError):
    """A model or picture file that is missing, truncated, refused or of no known family."""

    code = "model_file_problem"


class GraphBroken(NodeloomError):
    """A Graph breaks a rule of `passes/verify.py`: our bug, never the client's."""

    code = "graph_broken"
