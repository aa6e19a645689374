"""What comes out of a switch is of the types that go in; links are judged by that."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.ir import Graph

from ..known_files import CHECKPOINT, PICTURE
from ..prompts import Prompt, node, text_to_image

RESIZE = {"resize_type": "scale by multiplier", "resize_type.multiplier": 2.0}
Check = Callable[[Prompt], Validated]


def switch(on_false: object, on_true: object, chosen: object = True) -> dict[str, Any]:
    return node("ComfySwitchNode", switch=chosen, on_false=on_false, on_true=on_true)


def with_switch(on_false: object, on_true: object, *, into: str) -> Prompt:
    """The classic prompt, a switch on input `into` of its KSampler."""
    prompt = text_to_image(**{into: ["s", 0]})
    return {**prompt, "s": switch(on_false, on_true), "cat": node("LoadImage", image=PICTURE)}


def received(check: Check, prompt: Prompt) -> list[tuple[str, str, object]]:
    """Refused links: node, input, the type that came."""
    with pytest.raises(ImportRejected) as caught:
        check(prompt)
    problems = caught.value.problems
    assert {problem.type for problem in problems} == {"return_type_mismatch"}
    return [
        (p.node_id, p.extra_info["input_name"], p.extra_info["received_type"]) for p in problems
    ]


def test_a_switch_of_models_feeds_a_model(check: Check) -> None:
    assert check(with_switch(["4", 0], ["4", 0], into="model")).problems == ()


def test_a_switch_of_pictures_is_no_model(check: Check) -> None:
    prompt = with_switch(["cat", 0], ["cat", 0], into="model")
    assert received(check, prompt) == [("3", "model", "IMAGE")]


@pytest.mark.parametrize(("on_false", "on_true"), [(["cat", 0], ["4", 0]), (["4", 0], ["cat", 0])])
def test_both_sides_must_fit(check: Check, on_false: object, on_true: object) -> None:
    prompt = with_switch(on_false, on_true, into="model")
    assert received(check, prompt) == [("3", "model", "IMAGE")]


def test_literals_have_types_too(check: Check) -> None:
    assert check(with_switch(3, 4, into="steps")).problems == ()
    assert check(with_switch(3, 4.5, into="cfg")).problems == ()
    assert received(check, with_switch("3", 4, into="steps")) == [("3", "steps", "STRING")]
    assert received(check, with_switch(None, "4", into="steps")) == [("3", "steps", "STRING")]


def test_a_switch_behind_a_switch_is_looked_through(check: Check) -> None:
    prompt = with_switch(["t", 0], ["4", 0], into="model")
    assert check({**prompt, "t": switch(["4", 0], ["4", 0])}).problems == ()
    wrong = {**prompt, "t": switch(["4", 0], ["4", 1])}
    assert received(check, wrong) == [("3", "model", "CLIP")]


def test_a_template_allows_only_its_types(check: Check) -> None:
    prompt = text_to_image(model=["r", 0])
    prompt["r"] = node("ResizeImageMaskNode", input=["4", 0], scale_method="area", **RESIZE)
    assert received(check, prompt) == [("r", "input", "MODEL")]


def test_a_resized_mask_is_no_picture(check: Check) -> None:
    prompt = {
        "m": node("SolidMask", value=1.0, width=8, height=8),
        "r": node("ResizeImageMaskNode", input=["m", 0], scale_method="area", **RESIZE),
        "9": node("SaveImage", images=["r", 0], filename_prefix="x"),
    }
    assert received(check, prompt) == [("9", "images", "MASK")]


def test_switches_in_a_circle_are_refused_as_one(check: Check) -> None:
    prompt = with_switch(["t", 0], ["4", 0], into="model")
    prompt["t"] = switch(["s", 0], ["4", 0])
    with pytest.raises(ImportRejected) as caught:
        check(prompt)
    assert "dependency_cycle" in {problem.type for problem in caught.value.problems}


def test_a_broken_link_into_a_switch_says_nothing_of_its_type(check: Check) -> None:
    prompt = with_switch(["nowhere", 0], ["4", 0], into="model")
    with pytest.raises(ImportRejected) as caught:
        check(prompt)
    assert {problem.node_id for problem in caught.value.problems} == {"s"}


def test_thousands_of_switches_in_a_row_are_looked_through_once(check: Check) -> None:
    prompt = with_switch(["4", 0], ["s0", 0], into="model")
    count = 3000
    for index in range(count):
        last = index == count - 1
        after = ["4", 0] if last else [f"s{index + 1}", 0]
        prompt[f"s{index}"] = switch(after, after)
    began = time.perf_counter()
    assert check(prompt).problems == ()
    assert time.perf_counter() - began < 30.0


def test_what_is_validated_is_lowered(check: Check, imported: Callable[[Prompt], Graph]) -> None:
    graph = imported(with_switch(["4", 0], ["4", 0], into="model"))
    assert CHECKPOINT in {n.model.key.file.path.rpartition("/")[2] for n in graph.nodes if n.model}
