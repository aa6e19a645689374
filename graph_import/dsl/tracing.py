"""`@workflow`: a function whose parameters are the inputs and whose return value is the output.

It is run with placeholders, once for each set of values that shaped it; data never runs it again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Annotated, Any, Final, get_args, get_type_hints, overload

import msgspec

from ..errors import CompositionError, Fault, Place
from ..handles import Scalar
from ..nodes.schema import InputSpec
from ..scope import active, caller, recording
from ..types import IMAGE
from .arguments import by_name, check_argument
from .placeholder import Placeholder
from .program import Program, WorkflowInput
from .recording import Recording
from .source import FAILURES, failure

Image = Annotated[Any, IMAGE]  # the annotation of a picture among the parameters
MAX_TRACES: Final = 16  # kept per function, the latest used
OUTPUT: Final = "image"  # the name of an output that has none

_running: ContextVar[tuple[WorkflowFunction, ...]] = ContextVar("nodeloom_running", default=())


class WorkflowFunction:
    """A workflow that is traced when it is needed; called inside another it becomes part of it."""

    def __init__(self, function: Callable[..., Any], name: str | None) -> None:
        code = function.__code__
        self.name = function.__name__ if name is None else name
        self.place = Place(file=code.co_filename, line=code.co_firstlineno)
        self.module = function.__module__
        self._function = function
        self._types = _parameter_types(function, self.place)
        self._defaults = _defaults(function)
        self._traces: tuple[Program, ...] = ()
        self.inputs: tuple[WorkflowInput, ...] = self._declare(Recording(self.name, {}))[0]

    def trace(self, values: Mapping[str, Scalar]) -> Program:
        """The program for these values: an earlier one unless a structural value differs.

        Raises: CompositionError: what the function does makes no sense, or raised.
        """
        given = {i.name: i.default for i in self.inputs if not i.is_required} | dict(values)
        known = self._traces
        suits = (p for p in known if all((u.name, u.value) in given.items() for u in p.structural))
        program = next(suits, None) or self._run(values)
        # Replaced as a whole: threads may bind at once.
        self._traces = (program, *(p for p in known if p is not program))[:MAX_TRACES]
        return program

    def __call__(self, *args: object, **inputs: object) -> Any:
        """Make this workflow part of the one that is being written: returns what it returns.

        Raises: CompositionError: none is being written, or it contains itself.
        """
        place = caller()
        if active() is None:
            message = (
                f"workflow {self.name!r} is called outside a workflow; `nodeloom run` runs it, "
                "bind() binds it to values"
            )
            raise CompositionError(message, Fault.NO_SCOPE, place)
        specs = [
            InputSpec(name=item.name, type=item.type, is_required=item.is_required)
            for item in self.inputs
        ]
        given = by_name(self.name, specs, args, inputs, place)
        for spec in specs:
            if spec.name in given:
                check_argument(self.name, spec, given[spec.name], place)
        return self._call(given, place)

    def _run(self, values: Mapping[str, Scalar]) -> Program:
        record = Recording(self.name, values)
        with recording(record):
            _, placeholders = self._declare(record)
            try:
                result = self._call(placeholders, self.place)
            except CompositionError:
                raise
            except FAILURES as problem:
                raise failure(problem, self.place.file) from problem
            for name, value in self._outputs(result).items():
                record.add_output(value, name, None, self.place)
            return record.finish(self.place)

    def _call(self, given: Mapping[str, object], place: Place) -> Any:
        running = _running.get()
        if self in running:
            names = [item.name for item in (*running[running.index(self) :], self)]
            message = f"a workflow can't contain itself: {' -> '.join(names)}"
            raise CompositionError(message, Fault.CYCLE, place)
        token = _running.set((*running, self))
        try:
            return self._function(**given)
        finally:
            _running.reset(token)

    def _declare(
        self, record: Recording
    ) -> tuple[tuple[WorkflowInput, ...], dict[str, Placeholder]]:
        placeholders = {
            name: record.add_input(name, type_, self._defaults.get(name, msgspec.UNSET), self.place)
            for name, type_ in self._types.items()
        }
        return record.inputs, placeholders

    def _outputs(self, result: object) -> Mapping[str, object]:
        match result:
            case Placeholder():
                return {OUTPUT: result}
            case Mapping():
                return result
            case _:
                message = (
                    f"workflow {self.name!r} returns {type(result).__name__}; return the pictures, "
                    "or a dict of them by name"
                )
                received = type(result).__name__
                raise CompositionError(message, Fault.NO_OUTPUT, self.place, received=received)


@overload
def workflow(function: Callable[..., Any], /) -> WorkflowFunction: ...
@overload
def workflow(*, name: str) -> Callable[[Callable[..., Any]], WorkflowFunction]: ...
def workflow(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None
) -> WorkflowFunction | Callable[[Callable[..., Any]], WorkflowFunction]:
    """Make a function a workflow, called as the function unless `name` is given.

    Its parameters are annotated with str, int, float, bool or Image. Raises: CompositionError.
    """
    if function is not None:
        return WorkflowFunction(function, name)
    return lambda function: WorkflowFunction(function, name)


def _parameter_types(function: Callable[..., Any], place: Place) -> dict[str, str | type]:
    """What the parameters are annotated with. Raises: CompositionError."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as problem:
        raise CompositionError(f"annotation: {problem}", Fault.WRONG_TYPE, place) from problem
    types: dict[str, str | type] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD and (
            parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        ):
            message = f"parameter {name!r}: a workflow's inputs are plain named parameters"
            raise CompositionError(message, Fault.WRONG_TYPE, place)
        if name not in hints:
            message = f"parameter {name!r} needs a type: str, int, float, bool or Image"
            raise CompositionError(message, Fault.WRONG_TYPE, place)
        types[name] = _named_type(hints[name])
    return types


def _named_type(hint: Any) -> Any:
    """`Annotated[..., "IMAGE"]` names a port type; anything else is judged where it is declared."""
    extras: Sequence[Any] = get_args(hint)[1:]
    return next((extra for extra in extras if isinstance(extra, str)), hint)


def _defaults(function: Callable[..., Any]) -> dict[str, object]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
