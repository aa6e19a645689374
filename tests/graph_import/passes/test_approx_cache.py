"""The approximate cache's pass: the question, what a miss and a hit make of the graph."""

from __future__ import annotations

import copy
from collections.abc import Callable

import msgspec
import pytest
from nodeloom.graph_import.comfy.importer import EdgeValues, grow, import_prompt
from nodeloom.graph_import.comfy.validate import Validated, validate
from nodeloom.graph_import.ir import Edge, Graph, Node, NodeId
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.passes.approx_cache import MISS
from nodeloom.graph_import.passes.options import (
    ApproximateCache,
    AsyncLora,
    CacheLevel,
    PassOptions,
)
from nodeloom.graph_import.passes.verify import verify

from ..known_files import KnownFiles, every_file
from ..prompts import Prompt, node, steps_off_a_picture, text_to_image

LOOKUP = NodeId("3/eval-0-lookup")
LEVELS = (CacheLevel(similarity=0.9, skip=0.2), CacheLevel(similarity=0.95, skip=0.4))


def options(*levels: CacheLevel) -> PassOptions:
    cache = ApproximateCache(levels=levels or LEVELS, folder="/kept", max_bytes=10**6)
    return PassOptions(approximate_cache=cache)


class Requests:
    """Prompts as requests that opt in."""

    def __init__(self, check: Callable[[Prompt], Validated], files: KnownFiles) -> None:
        self._check = check
        self._files = files

    def first(self, prompt: Prompt, asked: PassOptions | None = None) -> Graph:
        valid = self._check(prompt)
        asked = options() if asked is None else asked
        return import_prompt(valid.prompt, valid.roots, Registry(), self._files, asked)

    def then(
        self, graph: Graph, prompt: Prompt, known: EdgeValues, asked: PassOptions | None = None
    ) -> Graph:
        valid = self._check(prompt)
        asked = options() if asked is None else asked
        grown = grow(graph, valid.prompt, valid.roots, Registry(), self._files, known, asked)
        verify(grown)
        return grown


@pytest.fixture
def requests(check: Callable[[Prompt], Validated], files: KnownFiles) -> Requests:
    return Requests(check, files)


def answer(level: int, entry: str = "", lookup: NodeId = LOOKUP) -> EdgeValues:
    return {(lookup, 0): level, (lookup, 1): entry}


def ops(graph: Graph, stem: str = "") -> list[str]:
    return [n.op for n in graph.nodes if n.op.startswith(stem)]


def only(graph: Graph, op: str) -> Node:
    (found,) = [n for n in graph.nodes if n.op == op]
    return found


def evaluations(graph: Graph) -> list[object]:
    return [n.param("evaluation") for n in graph.nodes if n.op == "denoise"]


def test_sampling_waits_for_the_answer_and_the_rest_runs(requests: Requests) -> None:
    graph = requests.first(text_to_image(steps=10))
    assert sorted(ops(graph)) == ["empty_latent", "latents_lookup", "text_encode", "text_encode"]
    edges = tuple(Edge(source=LOOKUP, port=port) for port in (0, 1))
    assert {p.id: p.waits_for for p in graph.pending} == {"3": edges, "8": (), "9": ()}
    assert graph.sinks == ()
    lookup = graph.by_id()[LOOKUP]
    assert dict(lookup.inputs) == {"positive": Edge(source=NodeId("6"), port=0)}
    assert lookup.origin.node_id == "6"
    similarities = [lookup.param(f"similarity_{level}") for level in (0, 1)]
    assert similarities == [0.95, 0.9]  # what skips most is tried first


def test_a_miss_runs_all_steps_and_keeps_what_others_may_start_from(requests: Requests) -> None:
    prompt = text_to_image(steps=10)
    first = requests.first(prompt)
    graph = requests.then(first, prompt, answer(MISS))
    assert evaluations(graph) == list(range(10))
    stores = [n for n in graph.nodes if n.op == "latents_store"]
    assert [dict(n.inputs)["state"].source for n in stores] == ["3/eval-1", "3/eval-3"]
    keys = [graph.by_id()[LOOKUP].param(f"key_{level}") for level in (1, 0)]
    assert [n.param("key") for n in stores] == keys
    assert set(graph.sinks) == {"9", *(n.id for n in stores)}
    plain = requests.first(prompt, PassOptions())
    assert set(plain.nodes) < set(graph.nodes)


@pytest.mark.parametrize(("level", "num_skipped"), [(0, 4), (1, 2)])
def test_a_hit_leaves_out_the_stated_share_of_steps(
    requests: Requests, level: int, num_skipped: int
) -> None:
    prompt = text_to_image(steps=10)
    graph = requests.then(requests.first(prompt), prompt, answer(level, "a/b"))
    assert evaluations(graph) == list(range(num_skipped, 10))
    resume = only(graph, "latents_resume")
    assert resume.param("entry") == "a/b"
    assert resume.param("seed") == 7
    next_one = graph.by_id()[NodeId(f"3/eval-{num_skipped}")]
    assert dict(next_one.inputs)["state"] == Edge(source=resume.id, port=0)
    assert graph.pending == ()
    assert graph.sinks == ("9",)
    assert "sample_begin" not in ops(graph)
    assert next_one.origin.value == num_skipped + 1


def test_a_step_of_several_evaluations_is_left_out_as_a_whole(requests: Requests) -> None:
    prompt = text_to_image(steps=5, sampler_name="heun")
    graph = requests.then(requests.first(prompt), prompt, answer(0, "a/b"))
    assert evaluations(graph) == list(range(4, 9))  # two each, and one in the last step


def test_shares_of_less_than_a_step_are_left_out(requests: Requests) -> None:
    graph = requests.first(text_to_image(steps=3))
    assert [n for n, _ in graph.by_id()[LOOKUP].params if n.startswith("key_")] == ["key_0"]
    assert ops(requests.first(text_to_image(steps=2)), "latents") == []


@pytest.mark.parametrize(
    ("node_id", "changes"),
    [
        ("3", {"cfg": 3.0}),
        ("3", {"sampler_name": "heun"}),
        ("3", {"scheduler": "karras"}),
        ("3", {"steps": 11}),
        ("5", {"width": 128}),
        ("7", {"text": "ugly"}),
    ],
)
def test_whatever_must_be_equal_is_in_the_key(
    requests: Requests, node_id: str, changes: dict[str, object]
) -> None:
    prompt = text_to_image(steps=10)
    other = copy.deepcopy(prompt)
    other[node_id]["inputs"] |= changes
    lookups = [requests.first(p).by_id()[LOOKUP] for p in (prompt, other)]
    assert lookups[0].param("key_0") != lookups[1].param("key_0")


@pytest.mark.parametrize(("node_id", "changes"), [("3", {"seed": 8}), ("6", {"text": "a dog"})])
def test_seed_and_text_are_not_in_the_key(
    requests: Requests, node_id: str, changes: dict[str, object]
) -> None:
    prompt = text_to_image(steps=10)
    other = copy.deepcopy(prompt)
    other[node_id]["inputs"] |= changes
    lookups = [requests.first(p).by_id()[LOOKUP] for p in (prompt, other)]
    assert lookups[0].param("key_0") == lookups[1].param("key_0")


def test_only_runs_from_nothing_are_looked_up(requests: Requests) -> None:
    prompt = text_to_image(steps=10)
    prompt["30"] = copy.deepcopy(prompt["3"])
    prompt["30"]["inputs"] |= {"latent_image": ["3", 0], "denoise": 0.5}
    prompt["8"]["inputs"]["samples"] = ["30", 0]
    graph = requests.first(prompt)
    assert ops(graph, "latents") == ["latents_lookup"]
    assert {p.id for p in graph.pending} == {"3", "30", "8", "9"}
    grown = requests.then(graph, prompt, answer(0, "a/b"))
    assert len(evaluations(grown)) == 6 + 10


@pytest.mark.parametrize(("seed", "num_waiting"), [(8, 3), (7, 6)])  # equal seeds: shared noise
def test_several_runs_are_answered_one_by_one(
    requests: Requests, seed: int, num_waiting: int
) -> None:
    prompt = text_to_image(steps=10)
    other_run = prompt["3"]["inputs"] | {"positive": ["60", 0], "seed": seed}
    prompt |= {
        "60": node("CLIPTextEncode", text="a dog", clip=["4", 1]),
        "30": node("KSampler", **other_run),
        "80": node("VAEDecode", samples=["30", 0], vae=["4", 2]),
        "90": node("SaveImage", images=["80", 0], filename_prefix="dog"),
    }
    other = NodeId("30/eval-0-lookup")
    known = [answer(0, "a/b"), answer(MISS, lookup=other)]
    ends = []
    for order in (known, known[::-1]):
        graph = requests.first(prompt)
        first = requests.then(graph, prompt, order[0])
        assert len(first.pending) in (3, num_waiting)
        ends.append(requests.then(first, prompt, {**order[0], **order[1]}))
    assert ends[0].pending == ends[1].pending == ()
    assert {n.id for n in ends[0].nodes} == {n.id for n in ends[1].nodes}
    assert len(evaluations(ends[0])) == 6 + 10


def test_twins_share_their_sampling_and_both_pictures_are_made(requests: Requests) -> None:
    prompt = text_to_image(steps=10)
    prompt |= {
        "30": copy.deepcopy(prompt["3"]),
        "80": node("VAEDecode", samples=["30", 0], vae=["4", 2]),
        "90": node("SaveImage", images=["80", 0], filename_prefix="again"),
    }
    graph = requests.first(prompt)
    assert {p.id for p in graph.pending} == {"3", "30", "8", "80", "9", "90"}
    grown = requests.then(graph, prompt, answer(0, "a/b"))
    assert len(evaluations(grown)) == 6
    assert set(grown.sinks) == {"9", "90"}


def test_a_run_whose_steps_are_computed_is_looked_up_when_they_are_known(
    requests: Requests,
) -> None:
    prompt = steps_off_a_picture()
    first = requests.first(prompt)
    assert ops(first, "latents") == []
    width: EdgeValues = {(NodeId("21"), 0): 10}
    second = requests.then(first, prompt, width)
    assert ops(second, "latents") == ["latents_lookup"]
    third = requests.then(second, prompt, {**width, **answer(0, "a/b")})
    assert len(evaluations(third)) == 6
    last = requests.then(third, prompt, {**width, **answer(0, "a/b"), (NodeId("32"), 1): 4})
    assert len(evaluations(last)) == 6 + 4


def test_a_run_that_a_controlnet_steers_is_left_alone() -> None:
    files = every_file()
    prompt = text_to_image(steps=10)
    prompt |= {
        "20": node("LoadImage", image="cat.png"),
        "21": node("ControlNetLoader", control_net_name="controlnet.safetensors"),
        "22": node(
            "ControlNetApplyAdvanced",
            positive=["6", 0],
            negative=["7", 0],
            control_net=["21", 0],
            image=["20", 0],
            strength=1.0,
            start_percent=0.0,
            end_percent=1.0,
        ),
    }
    prompt["3"]["inputs"] |= {"positive": ["22", 0], "negative": ["22", 1]}
    requests = Requests(checker(files), files)
    assert requests.first(prompt) == requests.first(prompt, PassOptions())


def checker(files: KnownFiles) -> Callable[[Prompt], Validated]:
    return lambda prompt: validate(prompt, Registry(), files)


def test_both_passes_together() -> None:
    files = every_file()
    both = msgspec.structs.replace(options(), async_lora=AsyncLora(steps=5))
    prompt = text_to_image(steps=10, model=["10", 0])
    prompt["10"] = node(
        "LoraLoaderModelOnly", model=["4", 0], lora_name="my-loras.safetensors", strength_model=1.0
    )
    requests = Requests(checker(files), files)
    graph = requests.first(prompt, both)
    grown = requests.then(graph, prompt, answer(0, "a/b"), both)
    patched = [bool(n.model.patches) for n in grown.nodes if n.op == "denoise" and n.model]
    assert patched == [False] + 5 * [True]
    alone = requests.first(prompt, options())
    keys = [g.by_id()[LOOKUP].param("key_0") for g in (graph, alone)]
    assert keys[0] != keys[1]  # what they keep has not seen the same steps
