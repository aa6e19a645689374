"""What goes between the server and a process that runs a workflow's text: a task, a reply."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ...graph_import.dsl.program import Program
from ...graph_import.errors import CompositionError, Fault, InvocationProblem, Place
from ...graph_import.handles import Scalar

SIZE_BYTES: Final = 4  # before each message: its length, big endian
MAX_MESSAGE_BYTES: Final = 32 << 20


class TraceTask(msgspec.Struct, frozen=True, kw_only=True):
    """Run a text, and trace a workflow of it.

    Args:
        workflow: its name; None: the only one.
        values: of all its inputs; None: its defaults.
        cpu_s, memory_bytes: what the process may use.
    """

    file: str
    text: bytes
    workflow: str | None
    values: dict[str, Scalar] | None
    cpu_s: int
    memory_bytes: int


class Traced(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The workflow's program for these values."""

    program: Program


class Broken(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The text makes no sense, or raised: a CompositionError."""

    message: str
    fault: Fault
    place: Place
    details: dict[str, Any]

    @classmethod
    def of(cls, problem: CompositionError) -> Broken:
        """The error, to be sent."""
        details = {n: v for n, v in problem.details.items() if n not in ("fault", "file", "line")}
        return cls(
            message=problem.message.removeprefix(f"{problem.place}: "),
            fault=problem.fault,
            place=problem.place,
            details=details,
        )

    def error(self) -> CompositionError:
        """The error, as it was raised."""
        return CompositionError(self.message, self.fault, self.place, **self.details)


class Rejected(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The workflow can't have these values: an InvocationRejected."""

    workflow: str
    problems: tuple[InvocationProblem, ...]


Reply = Traced | Broken | Rejected
