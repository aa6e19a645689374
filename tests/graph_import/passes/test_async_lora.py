"""Asynchronous LoRA loading's pass: which steps do without, and what the others wait for."""

from __future__ import annotations

import msgspec
import pytest
from nodeloom.graph_import.comfy.importer import grow, import_prompt
from nodeloom.graph_import.comfy.validate import validate
from nodeloom.graph_import.ir import Edge, Graph, Node, NodeId
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.passes.options import AsyncLora, PassOptions
from nodeloom.graph_import.passes.verify import verify

from ..known_files import KnownFiles, every_file, identity
from ..prompts import Prompt, node, steps_off_a_picture, text_to_image

LORA = "my-loras.safetensors"
TWO = AsyncLora(steps=2)


def with_lora(**sampling: object) -> Prompt:
    prompt = text_to_image(**{"steps": 6, **sampling})
    prompt["3"]["inputs"]["model"] = ["10", 0]
    prompt["10"] = lora(["4", 0])
    return prompt


def lora(model: list[object], name: str = LORA) -> Prompt:
    return node("LoraLoaderModelOnly", model=model, lora_name=name, strength_model=0.5)


def imported(
    prompt: Prompt, asked: AsyncLora | None = TWO, files: KnownFiles | None = None
) -> Graph:
    files = files or every_file()
    valid = validate(prompt, Registry(), files)
    options = PassOptions(async_lora=asked)
    graph = import_prompt(valid.prompt, valid.roots, Registry(), files, options)
    verify(graph)
    return graph


def evaluations(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.op == "denoise"]


def patched(graph: Graph) -> list[int]:
    return [len(n.model.patches) for n in evaluations(graph) if n.model is not None]


def ops(graph: Graph, stem: str) -> list[str]:
    return [n.op for n in graph.nodes if n.op.startswith(stem)]


def test_the_first_steps_run_on_the_base_and_wait_for_no_file() -> None:
    graph = imported(with_lora())
    assert patched(graph) == [0, 0, 1, 1, 1, 1]
    base = imported(text_to_image(steps=6), None)
    assert set(evaluations(base)[:2]) < set(graph.nodes)
    assert ops(graph, "patch") == ["patch_trigger", "patch_check"]


def test_a_check_before_the_first_patched_step_waits_for_the_file() -> None:
    graph = imported(with_lora())
    nodes = graph.by_id()
    check = NodeId("3/eval-2-check-0")
    assert dict(nodes[check].inputs) == {
        "trigger": Edge(source=NodeId("10/trigger"), port=0),
        "state": Edge(source=NodeId("3/eval-1"), port=0),
    }
    assert nodes[check].params == nodes[NodeId("10/trigger")].params
    for late in evaluations(graph)[2:]:
        assert dict(late.inputs)["patch_0"] == Edge(source=check, port=0)


def test_several_files_have_a_check_each() -> None:
    files = every_file()
    files.files["loras", "other.safetensors"] = identity("other")
    prompt = with_lora()
    prompt["11"] = lora(["10", 0], "other.safetensors")
    prompt["3"]["inputs"]["model"] = ["11", 0]
    graph = imported(prompt, files=files)
    assert patched(graph) == [0, 0, 2, 2, 2, 2]
    assert sorted(ops(graph, "patch")) == 2 * ["patch_check"] + 2 * ["patch_trigger"]


@pytest.mark.parametrize(
    ("size_bytes", "steps", "num_bare"),
    [(100, 6, 1), (3 * 10**8, 20, 6), (3 * 10**8, 6, 3), (0, 6, 0)],
)
def test_the_estimate_is_of_file_size_and_rates_and_at_most_half(
    size_bytes: int, steps: int, num_bare: int
) -> None:
    files = every_file()
    file = msgspec.structs.replace(identity("loras"), size_bytes=size_bytes)
    files.files["loras", LORA] = file
    asked = AsyncLora(fetch_bytes_per_s=1e8, step_s=0.5)
    graph = imported(with_lora(steps=steps), asked, files)
    assert patched(graph) == num_bare * [0] + (steps - num_bare) * [1]


def test_evaluations_of_one_step_are_patched_alike() -> None:
    graph = imported(with_lora(sampler_name="heun"))
    assert patched(graph) == 4 * [0] + 7 * [1]


def test_a_run_whose_texts_need_the_file_is_left_alone() -> None:
    prompt = with_lora()
    prompt["10"] = node(
        "LoraLoader",
        model=["4", 0],
        clip=["4", 1],
        lora_name=LORA,
        strength_model=0.5,
        strength_clip=0.5,
    )
    prompt["6"]["inputs"]["clip"] = ["10", 1]
    assert imported(prompt) == imported(prompt, None)


def test_a_second_run_begins_with_the_file_there() -> None:
    prompt = with_lora()
    second = prompt["3"]["inputs"] | {"latent_image": ["3", 0], "denoise": 0.5, "seed": 9}
    prompt["30"] = node("KSampler", **second)
    prompt["8"]["inputs"]["samples"] = ["30", 0]
    assert patched(imported(prompt)) == [0, 0, 1, 1, 1, 1] + 6 * [1]


def test_without_loras_nothing_changes() -> None:
    prompt = text_to_image(steps=6)
    assert imported(prompt) == imported(prompt, None)


def test_it_comes_out_the_same_when_more_is_known() -> None:
    files, options = every_file(), PassOptions(async_lora=TWO)
    prompt = steps_off_a_picture()
    prompt["10"] = lora(["4", 0])
    prompt["3"]["inputs"]["model"] = ["10", 0]
    prompt["30"]["inputs"]["latent_image"] = ["5", 0]
    prompt["31"]["inputs"]["width"] = 4
    valid = validate(prompt, Registry(), files)
    graph = import_prompt(valid.prompt, valid.roots, Registry(), files, options)
    known = {(NodeId("32"), 1): 4}
    grown = grow(graph, valid.prompt, valid.roots, Registry(), files, known, options)
    verify(grown)
    assert set(graph.nodes) <= set(grown.nodes)
