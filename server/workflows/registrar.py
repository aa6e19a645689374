"""Registers workflows, lists them, binds their versions to values.

A client's Python is never run: a registration names a file of the owner's folder. Its text is run
in a process of its own, when it is registered and once for each new set of structural values.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ...graph_import.dsl import checked_values
from ...graph_import.dsl.program import Program
from ...graph_import.handles import Scalar
from ...graph_import.nodes.user_model import PREFIX
from ..errors import BadRequest
from ..prompt_importer import PromptImporter
from .binding import Bound, bind_graph, bind_program
from .graphs import ParameterPlace, graph_source
from .records import (
    NAME,
    GraphSource,
    Json,
    PythonSource,
    RegistrationConflict,
    Source,
    Version,
)
from .store import WorkflowStore
from .tracer import Tracer
from .user_files import SourceFile, UserFiles

MAX_TRACED_VERSIONS: Final = 64  # of which programs are remembered
MAX_PROGRAMS: Final = 16  # of one version
MAX_CALLS_REMEMBERED: Final = 200_000  # of all programs together: some 200 MB


class Registration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of PUT /nodeloom/workflows/{name}: a file, or a graph.

    Args:
        file, workflow: a Python file below the owner's folder, and which of its workflows.
        sha256: if given, the file must have this content.
        prompt, parameters, outputs: a graph in API format; outputs by name -> node id.
    """

    file: str | None = None
    workflow: str | None = None
    sha256: str | None = None
    prompt: dict[str, Any] | None = None
    parameters: dict[str, ParameterPlace] = msgspec.field(default_factory=dict)
    outputs: dict[str, str] | None = None


def read_registration(body: Mapping[str, object]) -> Registration:
    """Raises: BadRequest: neither a file nor a graph, or both, or unknown keys."""
    try:
        given = msgspec.convert(body, type=Registration)
    except msgspec.ValidationError as problem:
        raise BadRequest("This is no registration", str(problem)) from problem
    of_graph = (given.prompt, given.parameters or None, given.outputs)
    of_file = (given.file, given.workflow, given.sha256)
    if any(of_graph) == any(of_file) or not (given.file or given.prompt):
        raise BadRequest(
            "Register either a file or a graph",
            "`file`, perhaps with `workflow` and `sha256`; or `prompt`, perhaps with `parameters` "
            "and `outputs`",
        )
    return given


class Registrar:
    """The workflows of one server. Open it with `open`, end with `close`."""

    def __init__(
        self,
        store: WorkflowStore,
        tracer: Tracer,
        user_files: UserFiles,
        importer: PromptImporter,
    ) -> None:
        self.store = store
        self._tracer = tracer
        self._user_files = user_files
        self._importer = importer
        self._programs: OrderedDict[tuple[str, ...], tuple[Program, ...]] = OrderedDict()

    async def register(self, name: str, given: Registration) -> tuple[Version, bool]:
        """Make it the current version of `name`. Returns: it, and whether it is new.

        Raises: BadRequest, ImportRejected, UserCodeRefused, UnsafeName, ModelFileProblem,
        CompositionError, TraceFailed, RegistrationConflict.
        """
        if not NAME.fullmatch(name):
            raise BadRequest(
                "This can't be the name of a workflow", "letters, digits, _ . and -, 100 at most"
            )
        if given.prompt is None:
            source: Source = await self._python_source(given)
        else:
            source = await asyncio.to_thread(
                graph_source, given.prompt, given.parameters, given.outputs, self._importer
            )
        return await self.store.register(name, source)

    async def bind(self, version: Version, values: Mapping[str, object]) -> Bound:
        """What to submit for these values of its inputs.

        Raises: InvocationRejected: with all problems. CompositionError, TraceFailed: its text makes
        no sense for the structural ones among them.
        """
        source = version.source
        if isinstance(source, GraphSource):
            return await asyncio.to_thread(bind_graph, version.name, source, values, self._importer)
        given = checked_values(version.name, source.program.inputs, values)
        program = await self._program(source, given)
        return await asyncio.to_thread(bind_program, program, given, self._importer)

    async def _python_source(self, given: Registration) -> PythonSource:
        file = await asyncio.to_thread(self._user_files.read, given.file or "")
        if given.sha256 not in (None, file.sha256):
            raise RegistrationConflict(
                f"{file.name} is another file on the server (sha256 {file.sha256}): copy yours "
                "into its --workflow-directory",
                sha256=file.sha256,
            )
        program = await self._tracer.trace(file, given.workflow, None)
        if any(call.class_type.startswith(PREFIX) for call in program.calls):
            self._user_files.check_models_allowed()
        if self._user_files.allows_models:
            # So that this version can still run when the file has become another one. With other
            # values than the defaults it may call models that are not in this program.
            await asyncio.to_thread(self._user_files.keep, file.name, file.sha256)
        return PythonSource(
            file=file.name,
            workflow=program.name,
            sha256=file.sha256,
            text=file.data,
            program=program,
        )

    async def _program(self, source: PythonSource, values: Mapping[str, Scalar]) -> Program:
        """The program for these values: traced once per set of structural ones."""
        key = (source.file, source.workflow, source.sha256)
        known = self._programs.get(key, (source.program,))
        program = next((program for program in known if _suits(program, values)), None)
        if program is None:
            file = SourceFile(name=source.file, data=source.text, sha256=source.sha256)
            program = await self._tracer.trace(file, source.workflow, values)
            known = self._programs.get(key, (source.program,))
        others = tuple(other for other in known if other is not program)
        self._programs[key] = (program, *others)[:MAX_PROGRAMS]
        self._programs.move_to_end(key)
        self._forget_some()
        return program

    def _forget_some(self) -> None:
        """Drop the programs of the least recently used versions beyond the bounds."""
        num_calls = sum(map(_num_calls, self._programs.values()))
        while self._programs and (
            len(self._programs) > MAX_TRACED_VERSIONS or num_calls > MAX_CALLS_REMEMBERED
        ):
            num_calls -= _num_calls(self._programs.popitem(last=False)[1])


def _suits(program: Program, values: Mapping[str, Scalar]) -> bool:
    return all(values[use.name] == use.value for use in program.structural)


def _num_calls(programs: tuple[Program, ...]) -> int:
    return sum(len(program.calls) for program in programs)


def listed(version: Version, numbers: list[int]) -> Json:
    """A workflow as GET /nodeloom/workflows/{name} shows it."""
    return {**version.describe(), "versions": numbers}
