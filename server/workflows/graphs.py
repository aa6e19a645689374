"""ComfyUI graphs with named parameters: what a registration says, and values put in its places."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...graph_import.comfy.api_format import Literal, PromptGraph, parse_prompt
from ...graph_import.dsl.invocation import converted, limited, unknown_inputs
from ...graph_import.errors import (
    ImportProblem,
    ImportRejected,
    InvocationProblem,
    InvocationRejected,
)
from ...graph_import.handles import Scalar
from ...graph_import.nodes.registry import Registry
from ...graph_import.nodes.schema import FileChoices, InputSpec
from ...graph_import.types import BOOLEAN, FLOAT, INT, STRING, takes_literals
from ..errors import BadRequest
from ..prompt_importer import PromptImporter
from .records import NAME, GraphSource, Json, Parameter

MAX_PARAMETERS: Final = 256
MAX_OUTPUTS: Final = 256
TYPED: Final = frozenset({INT, FLOAT, STRING, BOOLEAN})
NOTED_OPTIONS: Final = ("min", "max", "step", "multiline")


class ParameterPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a parameter's value goes."""

    node: str
    input: str


def graph_source(
    prompt_json: Json,
    places: Mapping[str, ParameterPlace],
    outputs: Mapping[str, str] | None,
    importer: PromptImporter,
) -> GraphSource:
    """A graph to register. Reads files, so it is called on a thread.

    Raises: BadRequest: parameters or outputs make no sense. ImportRejected: the graph can't run,
    whatever its parameters are given.
    """
    prompt = parse_prompt(prompt_json)
    if len(places) > MAX_PARAMETERS:
        raise _refused(f"more than {MAX_PARAMETERS} parameters")
    parameters = tuple(
        _parameter(name, place, prompt, importer.registry) for name, place in places.items()
    )
    taken = [(parameter.node_id, parameter.input) for parameter in parameters]
    for place in taken:
        if taken.count(place) > 1:
            raise _refused(f"two parameters go to input {place[1]!r} of node {place[0]!r}")
    named = _outputs(prompt, outputs, importer.registry)
    _check(prompt.to_json(), list(named.values()), set(taken), importer)
    importer.keep_declared(prompt, named.values())  # for when their files have become others
    return GraphSource(prompt=prompt.to_json(), parameters=parameters, outputs=named)


def with_values(name: str, source: GraphSource, values: Mapping[str, object]) -> Json:
    """The prompt with a value at every parameter's place.

    Raises: InvocationRejected: values are missing, unknown or of a wrong type; all of them.
    """
    declared = {parameter.name: parameter for parameter in source.parameters}
    problems = unknown_inputs(declared, values)
    prompt = copy.deepcopy(source.prompt)
    for parameter in declared.values():
        try:
            value = _value(parameter, values)
        except ValueError as problem:
            problems.append(InvocationProblem(input=parameter.name, reason=str(problem)))
        else:
            prompt[parameter.node_id].setdefault("inputs", {})[parameter.input] = value
    if problems:
        raise InvocationRejected(name, limited(problems))
    return prompt


def graph_rejection(
    name: str, source: GraphSource, problems: tuple[ImportProblem, ...], text: str
) -> InvocationRejected:
    """Problems of the bound prompt, at the parameters that they come from."""
    by_place = {(p.node_id, p.input): p.name for p in source.parameters}
    found = [
        InvocationProblem(
            input=by_place.get(_place(problem)),
            reason=f"{problem.message}: {problem.details} "
            f"({problem.class_type}, node {problem.node_id})",
        )
        for problem in problems
    ]
    told = limited(found) or [InvocationProblem(input=None, reason=text)]
    return InvocationRejected(name, told)


def _value(parameter: Parameter, values: Mapping[str, object]) -> Scalar:
    """Raises: ValueError: none is given, or one of another type."""
    value = values.get(parameter.name, parameter.default)
    if isinstance(value, msgspec.UnsetType):
        raise ValueError(f"it is required, of type {parameter.type}")
    if parameter.type in TYPED:
        return converted(parameter.type, value)
    if isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"a value of type {parameter.type} is needed, not {value!r:.60}")


def _parameter(
    name: str, place: ParameterPlace, prompt: PromptGraph, registry: Registry
) -> Parameter:
    """Raises: BadRequest."""
    if not NAME.fullmatch(name):
        raise _refused(f"{name!r:.120} can't be the name of a parameter")
    spec = _spec(name, place, prompt, registry)
    given = (prompt.nodes[place.node].inputs or {}).get(place.input)
    default: Any = msgspec.UNSET
    if isinstance(given, Literal):
        default = given.value
    elif given is not None:
        raise _refused(f"parameter {name!r}: another node feeds input {place.input!r}")
    elif not spec.is_required:
        default = (spec.options or {}).get("default", msgspec.UNSET)
    if not isinstance(default, bool | int | float | str | msgspec.UnsetType):
        raise _refused(f"parameter {name!r}: the graph has no plain value there")
    return Parameter(
        name=name,
        node_id=place.node,
        input=place.input,
        type=spec.type,
        default=default,
        details=_details(spec),
    )


def _spec(name: str, place: ParameterPlace, prompt: PromptGraph, registry: Registry) -> InputSpec:
    """The declared input at a place, which takes plain values. Raises: BadRequest."""
    node = prompt.nodes.get(place.node)
    if node is None:
        raise _refused(f"parameter {name!r}: there is no node {place.node!r:.60}")
    if node.class_type not in registry:
        raise _refused(f"parameter {name!r}: there is no node class {node.class_type!r:.60}")
    specs = {spec.name: spec for spec in registry[node.class_type].schema.inputs}
    spec = specs.get(place.input)
    if spec is None or not takes_literals(spec.type):
        there = ", ".join(n for n, s in specs.items() if takes_literals(s.type)) or "none"
        raise _refused(
            f"parameter {name!r}: {node.class_type} takes no value on {place.input!r:.60}; "
            f"it does on: {there}"
        )
    return spec


def _details(spec: InputSpec) -> Json:
    options = spec.options or {}
    noted: Json = {name: options[name] for name in NOTED_OPTIONS if name in options}
    match spec.choices:
        case FileChoices(kind=kind):
            noted["files"] = kind
        case tuple() as choices:
            noted["choices"] = list(choices)
    return noted


def _outputs(
    prompt: PromptGraph, outputs: Mapping[str, str] | None, registry: Registry
) -> dict[str, str]:
    """Output nodes by name; all of them by their ids if none is named. Raises: BadRequest."""
    there = [
        node.id
        for node in prompt.nodes.values()
        if node.class_type in registry and registry[node.class_type].schema.is_output_node
    ]
    if outputs is None:
        return {node_id: node_id for node_id in there}
    if len(outputs) > MAX_OUTPUTS:
        raise _refused(f"more than {MAX_OUTPUTS} outputs")
    for name, node_id in outputs.items():
        if not NAME.fullmatch(name):
            raise _refused(f"{name!r:.120} can't be the name of an output")
        if node_id not in there:
            known = ", ".join(there) or "none"
            raise _refused(f"output {name!r}: {node_id!r:.60} is no output node; there are {known}")
    if not outputs:
        raise _refused("name an output, or leave `outputs` away")
    return dict(outputs)


def _check(
    prompt: Json, targets: list[str], places: set[tuple[str, str]], importer: PromptImporter
) -> None:
    """Raises: ImportRejected: something is wrong that no parameter can mend."""
    try:
        validated = importer.validate(prompt, targets)
    except ImportRejected as rejected:
        if not rejected.problems:
            raise
        problems = rejected.problems
    else:
        problems = validated.problems
    left = [problem for problem in problems if _place(problem) not in places]
    if left:
        first = f"{left[0].message}: {left[0].details}"
        message = "The graph can't be run"
        raise ImportRejected("workflow_failed_validation", message, first, problems=left)


def _place(problem: ImportProblem) -> tuple[str, str]:
    return problem.node_id, str(problem.extra_info.get("input_name", ""))


def _refused(reason: str) -> BadRequest:
    return BadRequest("The workflow can't be registered", reason, type_="bad_registration")
