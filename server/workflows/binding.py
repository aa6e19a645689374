"""A version with values: the prompt, Graph and named outputs of one request. Reads files."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...graph_import.comfy.validate import Validated
from ...graph_import.dsl import rejection
from ...graph_import.dsl.invocation import told
from ...graph_import.dsl.program import Program
from ...graph_import.errors import ImportRejected
from ...graph_import.handles import Scalar
from ...graph_import.ir import Graph
from ..json_body import check_storable
from ..prompt_importer import PromptImporter
from .graphs import graph_rejection, with_values
from .records import GraphSource, Json


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What is submitted: like a prompt of a client, and `outputs`: name -> its output node."""

    prompt: Json
    roots: tuple[str, ...]
    graph: Graph
    outputs: dict[str, str]


def bind_program(program: Program, values: Mapping[str, Scalar], importer: PromptImporter) -> Bound:
    """A traced workflow with a value for every input. Raises: InvocationRejected."""
    try:
        validated, graph = _compile(program.prompt(values), None, importer)
    except ImportRejected as rejected:
        raise rejection(program, rejected.problems, told(rejected)) from rejected
    outputs = {output.name: output.node_id for output in program.outputs}
    return _bound(validated, graph, outputs)


def bind_graph(
    name: str, source: GraphSource, values: Mapping[str, object], importer: PromptImporter
) -> Bound:
    """A registered graph with values for its parameters. Raises: InvocationRejected."""
    prompt = with_values(name, source, values)
    try:
        validated, graph = _compile(prompt, list(source.outputs.values()), importer)
    except ImportRejected as rejected:
        raise graph_rejection(name, source, rejected.problems, told(rejected)) from rejected
    return _bound(validated, graph, source.outputs)


def _compile(
    prompt: Json, targets: list[str] | None, importer: PromptImporter
) -> tuple[Validated, Graph]:
    """Raises: ImportRejected: something in it can't run; unlike a prompt, all of it must."""
    validated = importer.validate(prompt, targets)
    if validated.problems:
        message = "Some outputs can't be made"
        raise ImportRejected("workflow_failed", message, problems=validated.problems)
    check_storable(validated.prompt.to_json())
    return validated, importer.lower_validated(validated)


def _bound(validated: Validated, graph: Graph, outputs: dict[str, str]) -> Bound:
    prompt = validated.prompt.to_json()
    return Bound(prompt=prompt, roots=validated.roots, graph=graph, outputs=outputs)
