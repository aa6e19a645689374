"""Workflows in Python on a command line: the file is run here, `--set NAME=value` fills inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ...graph_import.dsl import (
    Definition,
    checked_values,
    run_source,
    workflows_in,
)
from ...graph_import.dsl.program import Program
from ...graph_import.types import IMAGE, STRING
from ..client import FieldProblem
from ..embedded import NoWorkflow
from .workflow_file import BadSetting, Prompt

SUFFIX: Final = ".py"
MAX_FILE_BYTES: Final = 1 << 20


class PythonFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of workflows that was run."""

    path: Path
    sha256: str
    workflows: dict[str, Definition]


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow with values for its inputs."""

    program: Program
    prompt: Prompt

    def place(self, problem: FieldProblem) -> FieldProblem:
        """A problem of the prompt where the text has it: `flow.py:6: seed: Value -1 ...`."""
        place = self.program.place_of(problem.node_id)
        if place is None:
            return problem
        given = self.program.input_at(problem.node_id, problem.field)
        what = given or (f"{problem.class_type}, {problem.field}" if problem.field else "")
        reason = f"{what}: {problem.reason}" if what else problem.reason
        return FieldProblem(node_id="", class_type="", field="", reason=f"{place}: {reason}")


def is_python(path: Path) -> bool:
    """Whether the file is to be run rather than read."""
    return path.suffix == SUFFIX


def run_file(path: Path) -> PythonFile:
    """Run a file. Raises: NoWorkflow: it can't be read. CompositionError: `file:line: ...`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise NoWorkflow(f"{path}: {problem.strerror}") from problem
    if len(data) > MAX_FILE_BYTES:
        raise NoWorkflow(f"{path}: larger than {MAX_FILE_BYTES >> 20} MB")
    module = run_source(data, path.name, str(path))
    return PythonFile(
        path=path,
        sha256=hashlib.sha256(data).hexdigest(),
        workflows=workflows_in(module),
    )


def trace_file(path: Path, workflow: str | None, settings: Iterable[str]) -> Traced:
    """Run a file and trace a workflow of it, its only one unless `workflow` names one.

    Raises: NoWorkflow, CompositionError, BadSetting. InvocationRejected: inputs without a value, or
    values of a wrong type.
    """
    file = run_file(path)
    definition = workflow_of(file, workflow)
    given = checked_values(definition.name, definition.inputs, _values(definition, settings))
    program = definition.trace(given)
    return Traced(program=program, prompt=program.prompt(given))


def workflow_of(file: PythonFile, name: str | None) -> Definition:
    """The workflow called `name`, or the only one. Raises: NoWorkflow: the message lists them."""
    if name is None and len(file.workflows) == 1:
        return next(iter(file.workflows.values()))
    if name in file.workflows:
        return file.workflows[name]
    there = ", ".join(file.workflows) or "none"
    asked = "name one with --workflow" if name is None else f"none is called {name!r}"
    raise NoWorkflow(f"{file.path}: workflows in this file: {there}; {asked}")


def _values(definition: Definition, settings: Iterable[str]) -> Mapping[str, Any]:
    """The values that `NAME=value` says; texts as they are, others as JSON."""
    types = {item.name: item.type for item in definition.inputs}
    values: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator:
            raise BadSetting(f"--set {setting}: must look like NAME=value")
        if name not in types:
            there = ", ".join(types) or "none"
            raise BadSetting(f"{definition.name} has no input {name!r}; its inputs: {there}")
        values[name] = text if types[name] in (STRING, IMAGE) else _json(text)
    return values


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
