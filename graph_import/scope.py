"""The workflow that is being written: what models that are made and called meanwhile belong to.

Nothing of a workflow lives here; `dsl/recording.py` implements `Recorder`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol

from .errors import CompositionError, Fault, Place

if TYPE_CHECKING:
    from .dsl.placeholder import Placeholder
    from .model import Model
    from .nodes.schema import NodeSchema

OWN_CODE: Final = __name__.rpartition(".")[0]


class Recorder(Protocol):
    """A workflow that is being written."""

    name: str

    def created(self, model: object, place: Place) -> None:
        """A model was made; one that is never called is a mistake."""
        ...

    def used(self, model: object) -> None:
        """A model was called, or attached to one that was."""
        ...

    def patches_of(self, model: object, before: Sequence[Any]) -> list[Any]:
        """The patches on `model` in this workflow, which had `before` when it began."""
        ...

    def call(
        self, label: str, schema: NodeSchema, given: Mapping[str, object]
    ) -> tuple[Placeholder, ...]:
        """A node class was called: a placeholder per output. Raises: CompositionError."""
        ...

    def shared_call(
        self, label: str, schema: NodeSchema, given: Mapping[str, object]
    ) -> tuple[Placeholder, ...]:
        """`call`, but once for equal arguments."""
        ...

    def invoke(self, model: Model, args: Sequence[object], inputs: Mapping[str, object]) -> Any:
        """A model of a user's own was called: placeholders of its outputs."""
        ...


_current: ContextVar[Recorder | None] = ContextVar("nodeloom_workflow", default=None)


def active() -> Recorder | None:
    """The workflow that is being written, if one is."""
    return _current.get()


def current(what: str) -> Recorder:
    """The workflow that is being written. Raises: CompositionError: none is, so `what` can't be."""
    recorder = _current.get()
    if recorder is None:
        message = f"{what} belongs inside `with Workflow(...)` or a @workflow function"
        raise CompositionError(message, Fault.NO_SCOPE, caller())
    return recorder


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Make `recorder` the workflow that is being written.

    Raises: CompositionError: another is.
    """
    outer = _current.get()
    if outer is not None:
        message = f"workflow {recorder.name!r} would be inside workflow {outer.name!r}"
        advice = "call a @workflow function there instead, it becomes part of the outer one"
        raise CompositionError(f"{message}; {advice}", Fault.NO_SCOPE, caller())
    token = _current.set(recorder)
    try:
        yield
    finally:
        _current.reset(token)


def caller() -> Place:
    """The innermost line outside this package: what the workflow's author wrote."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_own(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return Place(file=frame.f_code.co_filename, line=frame.f_lineno)


def _is_own(module: str) -> bool:
    return module == "contextlib" or module.startswith(f"{OWN_CODE}.")
