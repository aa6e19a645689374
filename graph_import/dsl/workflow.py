"""`Workflow`: the scope inside which calls of models become a workflow, traced once.

Source: LegoDiffusion (arXiv 2604.08123), Table 1 and Figure 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from ..errors import CompositionError, Fault, InvocationProblem, InvocationRejected
from ..handles import Scalar
from ..scope import caller, recording
from .program import Program, WorkflowInput
from .recording import Recording


class Workflow:
    """A scope: models that are called inside `with Workflow(name) as flow:` become its nodes.

    It is traced once, with the defaults of its inputs. An input that shaped it (in `range()`, say)
    keeps that value; a `@workflow` function is traced anew instead.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = caller()
        self._recording = Recording(name, {})
        self._scope: AbstractContextManager[None] | None = None
        self._program: Program | None = None

    def __enter__(self) -> Workflow:
        if self._scope is not None:
            message = f"workflow {self.name!r} was written already"
            raise CompositionError(message, Fault.NO_SCOPE, caller())
        scope = recording(self._recording)
        scope.__enter__()
        self._scope = scope
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        if self._scope is not None:
            self._scope.__exit__(None, None, None)
        if kind is None:
            self._program = self._recording.finish(caller())

    def add_input(self, name: str, type: str | type, default: object = msgspec.UNSET) -> Any:
        """Declare an input: a placeholder of its value.

        `type` is str, int, float, bool, or a port type: STRING, INT, FLOAT, BOOLEAN, IMAGE.
        Raises: CompositionError.
        """
        self._check_open("an input")
        return self._recording.add_input(name, type, default, caller())

    def add_output(self, value: object, name: str, *, prefix: str | None = None) -> None:
        """Name a result, an IMAGE. It is saved as `prefix`, by default `name`, with a number.

        Raises: CompositionError.
        """
        self._check_open("an output")
        self._recording.add_output(value, name, prefix, caller())

    @property
    def inputs(self) -> tuple[WorkflowInput, ...]:
        """The declared inputs. Raises: CompositionError: it isn't written yet."""
        return self._written().inputs

    def trace(self, values: Mapping[str, Scalar]) -> Program:
        """The program, whatever data the values are.

        Raises: InvocationRejected: one differs from what shaped it; CompositionError.
        """
        program = self._written()
        problems = [
            InvocationProblem(
                input=use.name,
                reason=(
                    f"it shaped this workflow as {use.value!r}, not {values[use.name]!r}; a "
                    "@workflow function would be traced anew"
                ),
                place=use.place,
            )
            for use in program.structural
            if use.name in values and values[use.name] != use.value
        ]
        if problems:
            raise InvocationRejected(self.name, problems)
        return program

    def _check_open(self, what: str) -> None:
        if self._scope is None or self._program is not None:
            message = f"{what} of {self.name!r} belongs inside its `with` block"
            raise CompositionError(message, Fault.NO_SCOPE, caller())

    def _written(self) -> Program:
        if self._program is None:
            message = f"workflow {self.name!r} was not written to its end"
            raise CompositionError(message, Fault.NO_SCOPE, self.place)
        return self._program
