"""Values for a workflow: all problems at once, each with its input and reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from nodeloom.graph_import.comfy.api_format import parse_prompt
from nodeloom.graph_import.comfy.importer import import_prompt
from nodeloom.graph_import.dsl import InvocationProblem, InvocationRejected, describe
from nodeloom.graph_import.dsl.invocation import MAX_PROBLEMS
from nodeloom.graph_import.nodes.registry import Registry

from ..known_files import PICTURE
from .flows import FILE, MODELS, bound, files, flow

TEXT = """
@workflow
def every_type(
    prompt: str, image: Image, steps: int = 2, cfg: float = 7,
    checkpoint: str = "dream.safetensors", is_inverted: bool = False, seed: int = 0,
):
    {models}
    if structural(is_inverted):
        image = Node("ImageInvert")(image)
    words = text_encoder(prompt)
    latents = generator(seed, steps, Vae(checkpoint).encode(image))
    for _ in range(steps):
        latents = step(denoiser(latents, words, words, cfg=cfg), latents)
    return vae.decode(latents)
""".format(models=MODELS.strip().replace("\n", "\n    "))
GOOD: dict[str, Any] = {"prompt": "a cat", "image": PICTURE}


def problems(**values: object) -> tuple[InvocationProblem, ...]:
    with pytest.raises(InvocationRejected) as caught:
        bound(flow(TEXT), **values)
    json.dumps(caught.value.details)
    return caught.value.problems


def test_a_workflow_is_described_by_its_typed_inputs() -> None:
    described = describe(flow(TEXT))
    assert json.loads(json.dumps(described)) == described
    assert described["name"] == "every_type"
    assert described["structural"] == ["is_inverted", "steps"]
    assert described["outputs"] == ["image"]
    assert described["inputs"] == [
        {"name": "prompt", "type": "STRING", "is_required": True},
        {"name": "image", "type": "IMAGE", "is_required": True},
        {"name": "steps", "type": "INT", "is_required": False, "default": 2},
        {"name": "cfg", "type": "FLOAT", "is_required": False, "default": 7.0},
        {
            "name": "checkpoint",
            "type": "STRING",
            "is_required": False,
            "default": "dream.safetensors",
        },
        {"name": "is_inverted", "type": "BOOLEAN", "is_required": False, "default": False},
        {"name": "seed", "type": "INT", "is_required": False, "default": 0},
    ]


def test_values_are_converted_and_defaults_filled_in() -> None:
    invocation = bound(flow(TEXT), **GOOD, cfg=3)
    assert invocation.values == {
        **GOOD,
        "steps": 2,
        "cfg": 3.0,
        "checkpoint": "dream.safetensors",
        "is_inverted": False,
        "seed": 0,
    }
    assert isinstance(invocation.values["cfg"], float)


def test_every_problem_is_told_at_once() -> None:
    found = problems(prompt=3, steps=True, cfg=float("nan"), sede=1, is_inverted=0)
    assert {p.input for p in found} == {"prompt", "image", "steps", "cfg", "sede", "is_inverted"}
    reasons = {p.input: p.reason for p in found}
    assert reasons["prompt"] == "a text is needed, not 3"
    assert reasons["image"] == "it is required, of type IMAGE"
    assert "whole number" in reasons["steps"]
    assert "there are prompt, image, steps" in reasons["sede"]


def test_many_problems_are_counted_and_not_all_told() -> None:
    found = problems(**{f"x{number}": 1 for number in range(5000)})
    assert len(found) == MAX_PROBLEMS + 1
    assert "there are prompt" in found[0].reason
    assert found[1].reason == "there is no such input"
    assert found[-1].reason == f"and {5000 + 2 - MAX_PROBLEMS} more problems"


def test_a_long_name_is_cut_where_it_is_told() -> None:
    found = problems(**{**GOOD, "x" * 10**6: 1})
    assert [len(str(p.input)) for p in found] == [200]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 2.0),
        ("steps", "2"),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("cfg", "7"),
        ("cfg", 10**400),
        ("cfg", float("inf")),
        ("prompt", None),
        ("image", ["cat.png", 0]),
        ("is_inverted", "true"),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: object) -> None:
    (problem,) = problems(**{**GOOD, name: value})
    assert problem.input == name
    assert "needed, not" in problem.reason


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("steps", 0, 13),
        ("seed", -1, 13),
        ("cfg", 101.0, 15),
        ("image", "dog.png", 2),
        ("checkpoint", "nowhere.safetensors", 13),
    ],
)
def test_a_value_that_the_graph_cant_take_names_input_and_line(
    name: str, value: object, line: int
) -> None:
    found = problems(**{**GOOD, name: value})
    assert {p.input for p in found} == {name}
    assert found[0].place is not None
    assert (found[0].place.file, found[0].place.line) == (FILE, line)
    assert str(value) in found[0].reason


def test_half_a_surrogate_pair_is_refused() -> None:
    (problem,) = problems(**{**GOOD, "prompt": "\ud800"})
    assert "surrogate" in problem.reason


def test_what_the_workflow_names_itself_is_told_with_its_line() -> None:
    text = """
    @workflow
    def gone(image: Image):
        vae = Vae("gone.safetensors")
        return vae.decode(vae.encode(image))
    """
    with pytest.raises(InvocationRejected) as caught:
        bound(flow(text), image=PICTURE)
    (problem,) = caught.value.problems
    assert problem.input is None
    assert problem.place is not None
    assert problem.place.line == 5
    assert "gone.safetensors" in problem.reason


def test_a_stored_prompt_lowers_to_the_same_graph_again() -> None:
    invocation = bound(flow(TEXT), **GOOD)
    stored = json.loads(json.dumps(invocation.prompt.to_json()))
    again = import_prompt(parse_prompt(stored), invocation.roots, Registry(), files())
    assert again == invocation.graph


def test_the_outputs_name_nodes_that_save() -> None:
    invocation = bound(flow(TEXT), **GOOD)
    assert invocation.outputs == {"image": "output-image"}
    assert invocation.roots == ("output-image",)
    assert [m.node_id for m in invocation.graph.members if m.is_output] == ["output-image"]


def test_a_picture_is_loaded_once_whatever_uses_it() -> None:
    text = """
    with Workflow("shown twice") as flow:
        image = flow.add_input("image", "IMAGE")
        flow.add_output(image, "as_it_is")
        flow.add_output(Node("ImageInvert")(image), "inverted", prefix="folder/negative")
    """
    invocation = bound(flow(text), image=f"{PICTURE} [input]")
    assert [n.id for n in invocation.graph.nodes if n.op == "load_image"] == ["input-image"]
    prefixes = [n.param("filename_prefix") for n in invocation.graph.nodes if n.op == "save_image"]
    assert prefixes == ["as_it_is", "folder/negative"]


def test_a_workflow_scope_keeps_what_shaped_it() -> None:
    text = """
    with Workflow("shaped") as flow:
        image, times = flow.add_input("image", "IMAGE"), flow.add_input("times", int, 2)
        for _ in range(times):
            image = Node("ImageInvert")(image)
        flow.add_output(image, "out")
    """
    definition = flow(text)
    assert len(bound(definition, image=PICTURE, times=2).graph.nodes) == 4
    with pytest.raises(InvocationRejected) as caught:
        bound(definition, image=PICTURE, times=3)
    (problem,) = caught.value.problems
    assert problem.input == "times"
    assert problem.place is not None
    assert problem.place.line == 4
    assert "@workflow" in problem.reason


def test_a_value_that_only_a_run_can_tell_leaves_the_rest_pending() -> None:
    text = """
    @workflow
    def by_size(image: Image):
        {models}
        width, height, _ = Node("GetImageSize")(image)
        words = text_encoder("a cat")
        latents = generator(0, width)
        latents = step(denoiser(latents, words, words), latents)
        return vae.decode(latents)
    """.replace("{models}", MODELS.strip().replace("\n", "\n        "))
    graph = bound(flow(text), image=PICTURE).graph
    assert "LatentsGenerator-1" in {p.id for p in graph.pending}
    assert {n.op for n in graph.nodes} >= {"load_image", "image_size", "text_encode"}
