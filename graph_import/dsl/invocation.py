"""Values for a workflow's inputs: checked, and bound to a Graph by way of an ordinary prompt."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import chain, islice, repeat
from typing import Any, Final, Protocol

import msgspec

from ..catalog import Catalog
from ..comfy.api_format import PromptGraph
from ..comfy.importer import import_prompt
from ..comfy.validate import validate
from ..errors import ImportProblem, ImportRejected, InvocationProblem, InvocationRejected
from ..handles import Scalar
from ..ir import Graph
from ..nodes.registry import Registry
from ..nodes.user_model import MAX_INT, MIN_INT
from ..types import BOOLEAN, FLOAT, IMAGE, INT, STRING
from .program import Program, WorkflowInput

MAX_PROBLEMS: Final = 100  # that are told, and inputs that are named
MAX_NAME_SHOWN: Final = 200  # characters


class Definition(Protocol):
    """A workflow in Python: a `Workflow` or a `@workflow` function."""

    name: str

    @property
    def inputs(self) -> tuple[WorkflowInput, ...]:
        """What it can be given. Raises: CompositionError."""
        ...

    def trace(self, values: Mapping[str, Scalar]) -> Program:
        """Its program for these values. Raises: CompositionError, InvocationRejected."""
        ...


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow bound to values.

    Args:
        values: of every input, converted.
        prompt, roots: what ComfyUI's importer takes: to be stored, and lowered again from there.
        outputs: output name -> the node of the prompt whose ui output lists the saved pictures.
    """

    workflow: str
    values: dict[str, Scalar]
    prompt: PromptGraph
    roots: tuple[str, ...]
    outputs: dict[str, str]
    graph: Graph


def bind(
    definition: Definition, values: Mapping[str, object], registry: Registry, catalog: Catalog
) -> Invocation:
    """The Graph of a workflow for these values; inputs without a value have their defaults.

    Raises:
        InvocationRejected: values are missing, unknown, of a wrong type or out of range, or a file
            that they or the workflow name can't be used; carries all problems found.
        CompositionError: the workflow itself makes no sense for the structural ones among them.
    """
    given = checked_values(definition.name, definition.inputs, values)
    program = definition.trace(given)
    try:
        validated = validate(program.prompt(given), registry, catalog)
        if validated.problems:
            raise rejection(program, validated.problems, "")
        graph = import_prompt(validated.prompt, validated.roots, registry, catalog)
    except ImportRejected as rejected:
        raise rejection(program, rejected.problems, told(rejected)) from rejected
    return Invocation(
        workflow=definition.name,
        values=given,
        prompt=validated.prompt,
        roots=validated.roots,
        outputs={output.name: output.node_id for output in program.outputs},
        graph=graph,
    )


def describe(definition: Definition) -> dict[str, Any]:
    """name, typed inputs, structural ones among them, and outputs, for listings as JSON.

    Raises: CompositionError: it can't be traced with its defaults alone.
    """
    return describe_program(definition.trace({}))


def describe_program(program: Program) -> dict[str, Any]:
    """`describe`, of a workflow that was traced already."""
    return {
        "name": program.name,
        "inputs": [item.describe() for item in program.inputs],
        "structural": [use.name for use in program.structural],
        "outputs": [output.name for output in program.outputs],
    }


def checked_values(
    workflow: str, inputs: Sequence[WorkflowInput], values: Mapping[str, object]
) -> dict[str, Scalar]:
    """A value for every input. Raises: InvocationRejected: with a problem for each that has none
    or a wrong one."""
    declared = {item.name: item for item in inputs}
    problems = unknown_inputs(declared, values)
    given: dict[str, Scalar] = {}
    for name, item in declared.items():
        value = values.get(name, item.default)
        if isinstance(value, msgspec.UnsetType):
            reason = f"it is required, of type {item.type}"
            problems.append(InvocationProblem(input=name, reason=reason))
            continue
        try:
            given[name] = converted(item.type, value)
        except ValueError as problem:
            problems.append(InvocationProblem(input=name, reason=str(problem)))
    if problems:
        raise InvocationRejected(workflow, limited(problems))
    return given


def unknown_inputs(
    declared: Mapping[str, object], values: Mapping[str, object]
) -> list[InvocationProblem]:
    """A problem for each value that no input takes; the first one says which inputs there are."""
    reasons = chain(
        [f"there is no such input; {_there_are(declared)}"], repeat("there is no such input")
    )
    unknown = (name for name in values if name not in declared)
    return [
        InvocationProblem(input=name[:MAX_NAME_SHOWN], reason=reason)
        for name, reason in zip(unknown, reasons, strict=False)
    ]


def limited(problems: Sequence[InvocationProblem]) -> Sequence[InvocationProblem]:
    """The first ones, and how many more there are: no answer is much larger than its question."""
    if len(problems) <= MAX_PROBLEMS:
        return problems
    more = f"and {len(problems) - MAX_PROBLEMS} more problems"
    return [*problems[:MAX_PROBLEMS], InvocationProblem(input=None, reason=more)]


def _there_are(declared: Mapping[str, object]) -> str:
    names = [*islice(declared, MAX_PROBLEMS), *(["..."] if len(declared) > MAX_PROBLEMS else [])]
    return f"there are {', '.join(names) or 'none'}"


def converted(type_: str, value: object) -> Scalar:
    """`value` as an input of `type_` holds it. Raises: ValueError: it is of another type."""
    match value:
        case bool():
            if type_ == BOOLEAN:
                return value
        case int() if type_ == INT and MIN_INT <= value <= MAX_INT:
            return value
        case int() | float() if type_ == FLOAT and abs(value) <= sys.float_info.max:
            return float(value)
        case str() if type_ in (STRING, IMAGE):
            return value
    raise ValueError(f"{WORDS[type_]} is needed, not {value!r:.60}")


WORDS: Mapping[str, str] = {
    INT: f"a whole number from {MIN_INT} to {MAX_INT}",
    FLOAT: "a finite number",
    STRING: "a text",
    BOOLEAN: "true or false",
    IMAGE: "the name of a picture in the input folder",
}


def told(rejected: ImportRejected) -> str:
    """What a rejected prompt says of itself, beside its problems."""
    return f"{rejected.message}: {rejected.text}" if rejected.text else rejected.message


def rejection(program: Program, problems: Sequence[ImportProblem], text: str) -> InvocationRejected:
    """Problems of a program's prompt, at the inputs and lines that they come from."""
    found = [
        InvocationProblem(
            input=program.input_at(problem.node_id, str(problem.extra_info.get("input_name", ""))),
            reason=f"{problem.message}: {problem.details}",
            place=program.place_of(problem.node_id),
        )
        for problem in problems
    ]
    told_ = limited(found) or [InvocationProblem(input=None, reason=text)]
    return InvocationRejected(program.name, told_)
