"""What the compiler's tests share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.comfy.importer import import_prompt
from nodeloom.graph_import.comfy.validate import Validated, validate
from nodeloom.graph_import.ir import Graph
from nodeloom.graph_import.nodes.registry import Registry

from .known_files import KnownFiles
from .prompts import Prompt


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def files() -> KnownFiles:
    return KnownFiles()


@pytest.fixture
def check(registry: Registry, files: KnownFiles) -> Callable[[Prompt], Validated]:
    return lambda prompt: validate(prompt, registry, files)


@pytest.fixture
def imported(
    registry: Registry, files: KnownFiles, check: Callable[[Prompt], Validated]
) -> Callable[[Prompt], Graph]:
    """Validate, lower, run the passes."""

    def run(prompt: Prompt) -> Graph:
        valid = check(prompt)
        return import_prompt(valid.prompt, valid.roots, registry, files)

    return run
