from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.comfy.importer import lower
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.ir import Edge, Graph, NodeId
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.passes.context import PassContext
from nodeloom.graph_import.passes.dedupe import dedupe
from nodeloom.graph_import.passes.verify import verify

from ..known_files import KnownFiles
from ..prompts import Prompt, node, text_to_image

Lower = Callable[[Prompt], Graph]


@pytest.fixture
def lowered(check: Callable[[Prompt], Validated], registry: Registry, files: KnownFiles) -> Lower:
    def run(prompt: Prompt) -> Graph:
        valid = check(prompt)
        return lower(valid.prompt, valid.roots, registry, files)

    return run


def twins() -> Prompt:
    """The same picture twice, saved under two names."""
    prompt = text_to_image(steps=2)
    other = {
        "k": node("KSampler", **prompt["3"]["inputs"]),
        "d": node("VAEDecode", samples=["k", 0], vae=["4", 2]),
        "s": node("SaveImage", images=["d", 0], filename_prefix="other"),
    }
    return prompt | other


def shared(graph: Graph) -> dict[str, str]:
    return {m.node_id: m.shared_with for m in graph.members if m.shared_with is not None}


def test_equal_nodes_become_one_and_their_members_say_so(lowered: Lower) -> None:
    graph = dedupe(lowered(twins()), PassContext())
    verify(graph)
    assert sum(n.op == "denoise" for n in graph.nodes) == 2
    assert shared(graph) == {"k": "3", "d": "8"}
    images = dict(graph.by_id()[NodeId("s")].inputs)["images"]
    assert images == Edge(source=NodeId("8"), port=0)
    assert graph.sinks == ("9", "s")


def test_outputs_that_are_equal_share_one_sink(lowered: Lower) -> None:
    prompt = twins()
    prompt["s"]["inputs"]["filename_prefix"] = "out"
    graph = dedupe(lowered(prompt), PassContext())
    assert graph.sinks == ("9",)
    assert shared(graph)["s"] == "9"


def test_a_node_that_an_earlier_graph_has_is_the_one_that_stays(lowered: Lower) -> None:
    keep = frozenset(NodeId(name) for name in ("k/begin", "k/eval-0", "k/eval-1", "k/end", "d"))
    graph = dedupe(lowered(twins()), PassContext(keep=keep))
    verify(graph)
    assert keep < graph.by_id().keys()
    assert shared(graph) == {"3": "k", "8": "d"}
    assert graph.sinks == ("9", "s")


def test_samplers_that_differ_late_share_only_their_beginning(lowered: Lower) -> None:
    prompt = twins()
    prompt["k"]["inputs"]["cfg"] = 1.0
    graph = dedupe(lowered(prompt), PassContext())
    verify(graph)
    assert shared(graph) == {}
    (member,) = [m for m in graph.members if m.node_id == "k"]
    assert member.nodes == ("k/eval-0", "k/eval-1", "k/end")
    state = dict(graph.by_id()[NodeId("k/eval-0")].inputs)["state"]
    assert state == Edge(source=NodeId("3/begin"), port=0)


def test_different_nodes_stay_apart(imported: Callable[[Prompt], Graph]) -> None:
    graph = imported(text_to_image())
    assert dedupe(graph, PassContext()) is graph
