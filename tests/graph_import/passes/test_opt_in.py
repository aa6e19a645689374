"""Passes that nobody asked for: files of their own that leave every graph as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from house.sources import product_python
from nodeloom.graph_import.comfy.importer import lower
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.ir import Graph
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.passes.approx_cache import approx_cache
from nodeloom.graph_import.passes.async_lora import async_lora
from nodeloom.graph_import.passes.base import PASSES, Pass
from nodeloom.graph_import.passes.context import PassContext
from nodeloom.graph_import.passes.dedupe import dedupe
from nodeloom.graph_import.passes.prune import prune

from ..known_files import KnownFiles
from ..prompts import Prompt, steps_off_a_picture, text_to_image

OPT_IN = (approx_cache, async_lora)
# Who may import them: the list of passes, and bodies that share a word with them.
IMPORTERS = {
    "approx_cache": {"graph_import/passes/base.py", "runtime/ops/approx_cache.py"},
    "async_lora": {"graph_import/passes/base.py"},
}


def test_they_come_last_and_are_the_only_ones_of_their_kind() -> None:
    assert (prune, dedupe, *OPT_IN) == PASSES


@pytest.mark.parametrize("opt_in", OPT_IN)
@pytest.mark.parametrize("prompt", [text_to_image(steps=10), steps_off_a_picture()])
def test_without_being_asked_a_pass_gives_the_very_graph_that_it_got(
    opt_in: Pass,
    prompt: Prompt,
    check: Callable[[Prompt], Validated],
    files: KnownFiles,
    imported: Callable[[Prompt], Graph],
) -> None:
    valid = check(prompt)
    graph = lower(valid.prompt, valid.roots, Registry(), files)
    assert opt_in(graph, PassContext()) is graph
    if not graph.pending:
        assert imported(prompt) == dedupe(prune(graph, PassContext()), PassContext())


@pytest.mark.parametrize("name", IMPORTERS)
def test_nothing_else_knows_of_a_pass(name: str) -> None:
    module = f"nodeloom.graph_import.passes.{name}"
    found = {
        source.path
        for source in product_python()
        for item in source.imports()
        if item.is_within(module)
    }
    assert found == IMPORTERS[name]
