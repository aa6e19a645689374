from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.comfy.importer import lower
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.ir import Graph, NodeId
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.passes.context import PassContext
from nodeloom.graph_import.passes.prune import prune
from nodeloom.graph_import.passes.verify import verify

from ..known_files import KnownFiles
from ..prompts import Prompt, text_to_image


@pytest.fixture
def unpruned(check: Callable[[Prompt], Validated], registry: Registry, files: KnownFiles) -> Graph:
    """The words 6 and 7 are encoded for nothing: the sampler is cut away."""
    valid = check(text_to_image(denoise=0.0))
    return lower(valid.prompt, valid.roots, registry, files)


def ids(graph: Graph) -> list[str]:
    return [node.id for node in graph.nodes]


def test_what_no_sink_needs_goes(unpruned: Graph) -> None:
    assert ids(unpruned) == ["6", "7", "5", "8", "9"]
    pruned = prune(unpruned, PassContext())
    verify(pruned)
    assert ids(pruned) == ["5", "8", "9"]
    assert {m.node_id: m.nodes for m in pruned.members if m.node_id in "67"} == {"6": (), "7": ()}


@pytest.mark.parametrize("role", ["wanted", "keep"])
def test_what_is_wanted_or_may_have_run_stays(unpruned: Graph, role: str) -> None:
    pruned = prune(unpruned, PassContext(**{role: frozenset({NodeId("7")})}))
    assert ids(pruned) == ["7", "5", "8", "9"]


def test_a_graph_without_waste_stays_the_same(imported: Callable[[Prompt], Graph]) -> None:
    graph = imported(text_to_image())
    assert prune(graph, PassContext()) is graph
