"""Pending nodes: what waits, what goes on meanwhile, and how the graph grows."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations

import pytest
from nodeloom.graph_import.comfy.importer import grow, import_prompt, lower
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.errors import GraphBroken, ImportRejected
from nodeloom.graph_import.handles import Scalar
from nodeloom.graph_import.ir import Edge, Graph, NodeId
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.passes.verify import verify

from ..known_files import PICTURE, KnownFiles, identity
from ..prompts import Prompt, node, steps_off_a_picture, text_to_image

Check = Callable[[Prompt], Validated]
Values = dict[tuple[NodeId, int], Scalar]

WIDTH = (NodeId("21"), 0)
HEIGHT = (NodeId("32"), 1)


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes]


def waits(graph: Graph) -> dict[str, tuple[Edge, ...]]:
    return {pending.id: pending.waits_for for pending in graph.pending}


def test_a_sampler_waits_for_its_steps_and_what_it_feeds_waits_with_it(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    valid = check(steps_off_a_picture())
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    assert waits(graph) == {
        "3": (Edge(source=NodeId("21"), port=0),),
        "30": (),
        "8": (),
        "9": (),
    }
    assert graph.sinks == ()
    assert {m.node_id for m in graph.members if not m.nodes} == {"3", "30", "4", "8", "9"}


def test_what_a_waiting_node_will_be_fed_by_runs_meanwhile(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    valid = check(steps_off_a_picture())
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    assert sorted(ops(graph)) == [
        "empty_latent",
        "image_scale",
        "image_size",
        "image_size",
        "load_image",
        "text_encode",
        "text_encode",
    ]


def test_growth_adds_nodes_and_changes_none(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    valid = check(steps_off_a_picture())
    first = import_prompt(valid.prompt, valid.roots, registry, files)
    known: Values = {WIDTH: 2}
    second = grow(first, valid.prompt, valid.roots, registry, files, known)
    assert waits(second) == {"30": (Edge(source=NodeId("32"), port=1),), "8": (), "9": ()}
    assert ops(second).count("denoise") == 2
    third = grow(second, valid.prompt, valid.roots, registry, files, {**known, HEIGHT: 4})
    assert third.pending == ()
    assert third.sinks == ("9",)
    assert ops(third).count("denoise") == 6
    assert set(first.nodes) < set(second.nodes) < set(third.nodes)


@pytest.mark.parametrize("order", list(permutations([WIDTH, HEIGHT])))
def test_the_order_in_which_values_arrive_does_not_matter(
    check: Check,
    registry: Registry,
    files: KnownFiles,
    order: tuple[tuple[NodeId, int], ...],
) -> None:
    values: Values = {WIDTH: 2, HEIGHT: 4}
    valid = check(steps_off_a_picture())
    at_once = lower(valid.prompt, valid.roots, registry, files, values)
    known: Values = {}
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    for key in order:
        known[key] = values[key]
        graph = grow(graph, valid.prompt, valid.roots, registry, files, known)
    assert {n.id: n.signature for n in graph.nodes} == {n.id: n.signature for n in at_once.nodes}
    assert graph.sinks == at_once.sinks


def test_a_value_that_the_graph_knows_does_not_replace_an_edge(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    prompt = steps_off_a_picture()
    prompt["5"]["inputs"]["width"] = ["21", 0]
    valid = check(prompt)
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    grown = grow(graph, valid.prompt, valid.roots, registry, files, {WIDTH: 64, HEIGHT: 4})
    latent = grown.by_id()[NodeId("5")]
    assert dict(latent.inputs)["width"] == Edge(source=NodeId("21"), port=0)


def test_a_value_that_makes_no_sense_is_refused_by_node_and_field(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    valid = check(steps_off_a_picture())
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    with pytest.raises(ImportRejected) as caught:
        grow(graph, valid.prompt, valid.roots, registry, files, {WIDTH: 20_000})
    (problem,) = caught.value.problems
    assert (problem.node_id, problem.type) == ("3", "value_bigger_than_max")
    assert problem.extra_info["input_name"] == "steps"


def test_a_value_of_a_node_that_is_not_there_is_our_bug(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    valid = check(steps_off_a_picture())
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    with pytest.raises(GraphBroken, match="ghost"):
        grow(graph, valid.prompt, valid.roots, registry, files, {(NodeId("ghost"), 0): 1})


def test_a_picture_that_was_overwritten_meanwhile_changes_nothing_that_ran(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    valid = check(steps_off_a_picture())
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    files.pictures[PICTURE] = identity(PICTURE, mtime_ns=99)
    grown = grow(graph, valid.prompt, valid.roots, registry, files, {WIDTH: 2, HEIGHT: 4})
    assert grown.by_id()[NodeId("20")] == graph.by_id()[NodeId("20")]


def test_the_twin_of_a_node_whose_value_came_is_known_too(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    prompt = steps_off_a_picture()
    prompt["22"] = node("GetImageSize", image=["20", 0])  # the same as "21"
    prompt["30"]["inputs"]["steps"] = ["22", 0]
    valid = check(prompt)
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    (edge,) = waits(graph)["3"]
    grown = grow(graph, valid.prompt, valid.roots, registry, files, {(edge.source, edge.port): 2})
    assert grown.pending == ()
    assert ops(grown).count("image_size") == 1


def test_a_twin_that_grows_before_what_already_runs_uses_it(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    prompt = text_to_image(steps=["21", 0])
    prompt["20"] = node("LoadImage", image=PICTURE)
    prompt["21"] = node("GetImageSize", image=["20", 0])
    late = text_to_image(steps=3)
    prompt["3b"], prompt["8b"], prompt["9b"] = late["3"], late["8"], late["9"]
    prompt["8b"]["inputs"]["samples"] = ["3b", 0]
    prompt["9b"]["inputs"]["images"] = ["8b", 0]
    valid = check(prompt)
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    assert graph.sinks == ("9b",)
    grown = grow(graph, valid.prompt, valid.roots, registry, files, {WIDTH: 3})
    assert {n.id for n in grown.nodes} == {n.id for n in graph.nodes}
    assert grown.sinks == ("9b",)
    shared = {m.node_id: m.shared_with for m in grown.members if m.shared_with}
    assert shared == {"3": "3b", "8": "8b", "9": "9b"}


def test_words_that_ran_for_nothing_stay_in_the_graph(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    prompt = text_to_image(steps=["21", 0], denoise=0.0)
    prompt["20"] = node("LoadImage", image=PICTURE)
    prompt["21"] = node("GetImageSize", image=["20", 0])
    valid = check(prompt)
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    grown = grow(graph, valid.prompt, valid.roots, registry, files, {WIDTH: 3})
    assert ops(grown).count("text_encode") == 2
    assert ops(grown).count("denoise") == 0


def test_growth_of_many_samplers_in_any_order_ends_alike(
    check: Check, registry: Registry, files: KnownFiles
) -> None:
    prompt = text_to_image()
    sizes = [NodeId(f"size{index}") for index in range(5)]
    for index, size in enumerate(sizes):
        prompt[f"p{index}"] = node("EmptyImage", width=index + 1, height=8, batch_size=1, color=0)
        prompt[size] = node("GetImageSize", image=[f"p{index}", 0])
        source = ["5", 0] if index < 2 else [f"k{index - 2}", 0]
        inputs = {**prompt["3"]["inputs"], "latent_image": source, "steps": [size, 0]}
        prompt[f"k{index}"] = node("KSampler", **inputs)
        prompt[f"d{index}"] = node("VAEDecode", samples=[f"k{index}", 0], vae=["4", 2])
        prompt[f"s{index}"] = node("PreviewImage", images=[f"d{index}", 0])
    valid = check(prompt)
    values: Values = {(size, 0): index + 1 for index, size in enumerate(sizes)}
    start = import_prompt(valid.prompt, valid.roots, registry, files)
    at_once = grow(start, valid.prompt, valid.roots, registry, files, values)
    for seed in range(10):
        order = list(values)
        random.Random(seed).shuffle(order)
        graph, known = start, {}
        for key in order:
            known[key] = values[key]
            graph = grow(graph, valid.prompt, valid.roots, registry, files, known)
            verify(graph)
        assert graph == at_once
