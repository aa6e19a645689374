"""Validation and lowering with the server's registry and catalog, for routes and coordinator alike.

Everything here reads files, so it is called on threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph_import.comfy.api_format import parse_prompt
from ..graph_import.comfy.importer import grow, import_prompt
from ..graph_import.comfy.validate import Validated, validate
from ..graph_import.ir import Graph
from ..graph_import.nodes.registry import Registry
from ..runtime.coordinator.records import Json, Known
from .catalog import FolderCatalog


class PromptImporter:
    """Implements `runtime.coordinator.records.Importer`."""

    def __init__(self, registry: Registry, catalog: FolderCatalog) -> None:
        self.registry = registry
        self.catalog = catalog

    def validate(self, prompt: object, targets: Sequence[str] | None) -> Validated:
        """What of a client's prompt can run. Raises: ImportRejected: nothing can."""
        return validate(prompt, self.registry, self.catalog, targets)

    def object_info(self, class_type: str | None = None) -> dict[str, object]:
        """ComfyUI's description of all node classes, or of one."""
        return self.registry.object_info(self.catalog, class_type)

    def lower_validated(self, validated: Validated) -> Graph:
        """Lower what `validate` gave. Raises: ImportRejected."""
        return import_prompt(validated.prompt, validated.roots, self.registry, self.catalog)

    def lower(self, prompt: Json, roots: Sequence[str]) -> Graph:
        """Lower a stored prompt from scratch. Raises: ImportRejected."""
        return import_prompt(parse_prompt(prompt), tuple(roots), self.registry, self.catalog)

    def grow(self, graph: Graph, prompt: Json, roots: Sequence[str], known: Known) -> Graph:
        """Lower it again with the scalars `known`; nodes of `graph` come out unchanged."""
        parsed = parse_prompt(prompt)
        return grow(graph, parsed, tuple(roots), self.registry, self.catalog, known)
