"""How many hooks, sets of them and keyframes a prompt may have, and that so many take no time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.ir import Graph

from ..known_files import KnownFiles, identity
from ..prompts import Prompt, node, text_to_image
from .hook_prompts import evaluations, hook, hooked, patches, problems, properties

Import = Callable[[Prompt], Graph]


@pytest.fixture
def files() -> KnownFiles:
    return KnownFiles(files={("loras", "a"): identity("a.safetensors")})


def test_too_many_hooks_are_refused(imported: Import, files: KnownFiles) -> None:
    prompt = hooked()
    for index in range(65):
        before = {"prev_hooks": [f"h{index - 1}", 0]} if index else {}
        prompt[f"h{index}"] = hook("a", 0.01 * (index + 1), **before)
    prompt["30"]["inputs"]["hooks"] = ["h64", 0]
    with pytest.raises(ImportRejected) as refused:
        imported(prompt)
    ((node_id, details, name),) = problems(refused.value)
    assert (node_id, name) == ("h64", "prev_hooks")
    assert "65 hooks are too many" in details


def doubling(num_times: int) -> Prompt:
    """A text combined with itself under one more hook, again and again."""
    prompt, last = hooked(steps=1), "6"
    for index in range(num_times):
        prompt[f"h{index}"] = hook("a", 0.1 * (index + 1))
        prompt[f"p{index}"] = properties(last, [f"h{index}", 0])
        prompt[f"c{index}"] = node(
            "ConditioningCombine", conditioning_1=[last, 0], conditioning_2=[f"p{index}", 0]
        )
        last = f"c{index}"
    prompt["3"]["inputs"]["positive"] = [last, 0]
    return prompt


def test_too_many_sets_of_hooks_are_refused(imported: Import) -> None:
    """Each of the nodes makes twice as many: 40 would be a million million."""
    assert len(evaluations(imported(doubling(6)))) == 63
    with pytest.raises(ImportRejected) as refused:
        imported(doubling(40))
    ((node_id, details, name),) = problems(refused.value)
    assert (node_id, name) == ("c6", "conditioning_1")
    assert "128 different sets" in details


def test_too_many_hooks_on_an_entry_are_refused(imported: Import) -> None:
    prompt, last = hooked(steps=1), "6"
    for index in range(65):
        prompt[f"h{index}"] = hook("a", 0.01 * (index + 1))
        prompt[f"p{index}"] = properties(last, [f"h{index}", 0])
        last = f"p{index}"
    prompt["3"]["inputs"]["positive"] = [last, 0]
    with pytest.raises(ImportRejected) as refused:
        imported(prompt)
    ((node_id, details, name),) = problems(refused.value)
    assert (node_id, name) == ("p64", "cond_NEW")
    assert "up to 65 hooks" in details


@pytest.mark.parametrize(
    ("strength_clip", "is_hung", "reason"),
    [(0.0, True, "65 hooks"), (0.5, False, "65 LoRAs on a model")],
)
def test_too_many_hooks_on_a_text_encoder_are_refused(
    imported: Import, strength_clip: float, is_hung: bool, reason: str
) -> None:
    prompt, last = text_to_image(steps=1), ["4", 1]
    for index in range(65):
        strengths = {"strength_model": 0.01 * (index + 1), "strength_clip": strength_clip}
        prompt[f"h{index}"] = node("CreateHookLora", lora_name="a", **strengths)
        prompt[f"c{index}"] = node(
            "SetClipHooks",
            clip=last,
            hooks=[f"h{index}", 0],
            apply_to_conds=is_hung,
            schedule_clip=False,
        )
        last = [f"c{index}", 0]
    prompt["6"]["inputs"]["clip"] = last
    with pytest.raises(ImportRejected) as refused:
        imported(prompt)
    ((node_id, details, name),) = problems(refused.value)
    assert (node_id, name) == ("c64", "hooks")
    assert reason in details


def test_many_hooks_with_many_keyframes_are_compared_quickly(imported: Import) -> None:
    """The keyframes are looked through once, not by each node that the hooks pass."""
    prompt = hooked(steps=1)
    frames: dict[str, object] = {}
    for index in range(10):
        prompt[f"k{index}"] = node(
            "CreateHookKeyframesInterpolated",
            strength_start=1.0,
            strength_end=2.0,
            interpolation="linear",
            start_percent=0.1 * index,
            end_percent=0.1 * index + 0.099,
            keyframes_count=100,
            print_keyframes=False,
            **frames,
        )
        frames = {"prev_hook_kf": [f"k{index}", 0]}
    for index in range(64):
        before = {"prev_hooks": [f"h{index - 1}", 0]} if index else {}
        prompt[f"h{index}"] = hook("a", 0.01 * (index + 1), **before)
    prompt["c0"] = node("SetHookKeyframes", hooks=["h63", 0], hook_kf=["k9", 0])
    for index in range(500):
        given = {f"hooks_{letter}": [f"c{index}", 0] for letter in "ABCDEFGH"}
        prompt[f"c{index + 1}"] = node("CombineHooks8", **given)
    prompt["30"]["inputs"]["hooks"] = ["c500", 0]
    began = time.perf_counter()
    (only,) = evaluations(imported(prompt))
    assert len(patches(only)) == 64
    assert time.perf_counter() - began < 10.0
