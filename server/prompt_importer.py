"""Validation and lowering with the server's registry and catalog, for routes and coordinator alike.

Everything here reads files, so it is called on threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from ..graph_import.comfy.api_format import Link, PromptGraph, parse_prompt
from ..graph_import.comfy.declared import declarations
from ..graph_import.comfy.importer import grow, import_prompt
from ..graph_import.comfy.problems import at_node, outputs_failed
from ..graph_import.comfy.validate import Validated, validate
from ..graph_import.errors import ImportProblem, ModelFileProblem
from ..graph_import.ir import Graph
from ..graph_import.nodes.literals import custom_failure
from ..graph_import.nodes.registry import Registry
from ..graph_import.nodes.user_model import DECLARATION
from ..runtime.coordinator.records import Json, Known
from .catalog import FolderCatalog
from .files import UnsafeName
from .pass_options import PassReader

MAX_PROBLEMS: Final = 100  # of users' files that are told


class PromptImporter:
    """Implements `runtime.coordinator.records.Importer`."""

    def __init__(
        self,
        registry: Registry,
        catalog: FolderCatalog,
        passes: PassReader = PassReader(),  # noqa: B008  (it has no state)
    ) -> None:
        self.registry = registry
        self.catalog = catalog
        self.passes = passes

    def validate(self, prompt: object, targets: Sequence[str] | None) -> Validated:
        """What of a client's prompt can run. Raises: ImportRejected: nothing can."""
        return validate(prompt, self.registry, self.catalog, targets)

    def object_info(self, class_type: str | None = None) -> dict[str, object]:
        """ComfyUI's description of all node classes, or of one."""
        return self.registry.object_info(self.catalog, class_type)

    def lower_validated(
        self, validated: Validated, extra_data: Mapping[str, object] | None = None
    ) -> Graph:
        """Lower what `validate` gave. Raises: ImportRejected."""
        return self._lower(validated.prompt, validated.roots, extra_data or {})

    def lower(self, prompt: Json, roots: Sequence[str], extra_data: Json) -> Graph:
        """Lower a stored prompt from scratch. Raises: ImportRejected."""
        return self._lower(parse_prompt(prompt), tuple(roots), extra_data)

    def grow(
        self, graph: Graph, prompt: Json, roots: Sequence[str], extra_data: Json, known: Known
    ) -> Graph:
        """Lower it again with the scalars `known`; nodes of `graph` come out unchanged."""
        parsed, options = parse_prompt(prompt), self.passes.options(extra_data)
        return grow(graph, parsed, tuple(roots), self.registry, self.catalog, known, options)

    def keep_declared(self, prompt: PromptGraph, roots: Iterable[str]) -> None:
        """Keep the files of all models of users' own that these outputs need.

        Raises: ImportRejected: some can't be kept; with a problem per node, MAX_PROBLEMS at most.
        """
        declaring = list(declarations(prompt))
        problems: list[ImportProblem] = []
        needed = _upstream(prompt, roots) if declaring else frozenset()
        refused: dict[tuple[str, str], str | None] = {}  # once per file, however many nodes
        for node, declared in declaring:
            if node.id not in needed or len(problems) == MAX_PROBLEMS:
                continue
            file = declared.file, declared.sha256
            if file not in refused:
                refused[file] = self._refusal(*file)
            if (reason := refused[file]) is not None:
                problems.append(at_node(node, custom_failure(DECLARATION, reason)))
        if problems:
            raise outputs_failed(problems, [problem.node_id for problem in problems], {})

    def _refusal(self, name: str, sha256: str) -> str | None:
        """Why a file can't be kept; None: it is."""
        try:
            self.catalog.user_files.keep(name, sha256)
        except (ModelFileProblem, UnsafeName) as problem:
            return problem.message
        return None

    def _lower(
        self, prompt: PromptGraph, roots: tuple[str, ...], extra_data: Mapping[str, object]
    ) -> Graph:
        self.keep_declared(prompt, roots)
        options = self.passes.options(extra_data)
        return import_prompt(prompt, roots, self.registry, self.catalog, options)


def _upstream(prompt: PromptGraph, roots: Iterable[str]) -> Set[str]:
    """The nodes that outputs need, themselves included."""
    found: set[str] = set()
    left = list(roots)
    while left:
        node_id = left.pop()
        node = prompt.nodes.get(node_id)
        if node_id not in found and node is not None:
            found.add(node_id)
            given = (node.inputs or {}).values()
            left.extend(value.node_id for value in given if isinstance(value, Link))
    return found
