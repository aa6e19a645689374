"""Hooks: what they put on a conditioning, and the nodes of its sampling."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.comfy.importer import grow, import_prompt
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import Patch
from nodeloom.graph_import.ir import Graph, NodeId
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.passes.options import AsyncLora, PassOptions
from nodeloom.graph_import.passes.verify import verify

from ..known_files import PICTURE, KnownFiles, identity
from ..prompts import Prompt, node, text_to_image
from .hook_prompts import evaluations, hook, hooked, patches, problems, properties

Import = Callable[[Prompt], Graph]

A, B = identity("a.safetensors"), identity("b.safetensors")


@pytest.fixture
def files() -> KnownFiles:
    return KnownFiles(files={("loras", "a"): A, ("loras", "b"): B})


def strengths(graph: Graph) -> dict[str, float]:
    """The strength of the only patch, by the evaluation's node."""
    return {n.id: patch.strength for n in evaluations(graph) for patch in patches(n)}


def test_every_evaluation_has_a_node_on_the_patched_model(imported: Import) -> None:
    graph = imported(hooked())
    verify(graph)
    nodes = graph.by_id()
    assert strengths(graph) == {f"3/eval-{index}-hooks-0": 0.5 for index in range(4)}
    for index in range(4):
        inputs = dict(nodes[NodeId(f"3/eval-{index}")].inputs)
        assert inputs["estimates_0"].source == f"3/eval-{index}-hooks-0"
        assert patches(nodes[NodeId(f"3/eval-{index}")]) == ()
    fetch = dict(evaluations(graph)[0].inputs)["patch_0"].source
    assert (fetch, nodes[fetch].param("path")) == ("20", A.path)


def test_a_hook_without_strength_leaves_no_node(imported: Import) -> None:
    assert evaluations(imported(hooked((0.0, 0.0)))) == []
    prompt = hooked()
    prompt["20"]["inputs"]["strength_model"] = 0.0
    graph = imported(prompt)
    assert {n.op for n in graph.nodes}.isdisjoint({"cond_hooks", "denoise_hooked", "patch_fetch"})


def test_keyframes_say_how_strong_a_hook_is_from_when_on(imported: Import) -> None:
    """The four steps begin at 0, a third, two thirds and the end of the timesteps, about."""
    graph = imported(hooked((0.2, 1.0), (0.5, 0.5), (0.9, 0.0)))
    assert strengths(graph) == {
        "3/eval-0-hooks-0": 0.5,  # before the first keyframe, as at it
        "3/eval-1-hooks-0": 0.5,
        "3/eval-2-hooks-0": 0.25,
    }


def test_of_two_keyframes_at_one_time_the_newer_counts(imported: Import) -> None:
    graph = imported(hooked((0.0, 1.0), (0.0, 0.5)))
    assert set(strengths(graph).values()) == {0.25}


@pytest.mark.parametrize(
    ("interpolation", "middle"),
    [("linear", 0.5), ("ease_in", 0.25), ("ease_out", 0.75), ("ease_in_out", 0.5)],
)
def test_keyframes_follow_an_easing(imported: Import, interpolation: str, middle: float) -> None:
    prompt = hooked((0.0, 1.0))
    prompt["20"]["inputs"]["strength_model"] = 1.0
    prompt["40"] = node(
        "CreateHookKeyframesInterpolated",
        strength_start=2.0,
        strength_end=1.0,
        interpolation=interpolation,
        start_percent=0.1,
        end_percent=0.7,
        keyframes_count=3,
        print_keyframes=True,
    )
    found = strengths(imported(prompt))
    assert list(found.values()) == pytest.approx([2.0, 2.0, 2.0 - middle, 1.0])


def test_sets_of_hooks_have_nodes_of_their_own(imported: Import) -> None:
    """Text 6 has a, text 7 a and b; a of another node with the same settings counts once."""
    prompt = hooked(steps=1)
    prompt["22"] = hook("a")
    prompt["23"] = hook("b", 0.25, prev_hooks=["22", 0])
    prompt["24"] = node("CombineHooks2", hooks_A=["20", 0], hooks_B=["23", 0])
    prompt["31"] = properties("7", ["24", 0])
    prompt["3"]["inputs"]["negative"] = ["31", 0]
    graph = imported(prompt)
    a, b = Patch(file=A, strength=0.5), Patch(file=B, strength=0.25)
    assert [patches(n) for n in evaluations(graph)] == [(a,), (a, b)]
    markers = [[v for k, v in n.params if k.startswith("hook_")] for n in evaluations(graph)]
    assert markers[1][0] == markers[0][0]
    assert len(set(markers[1])) == 2


def test_hooks_add_to_those_that_an_entry_has(imported: Import) -> None:
    prompt = hooked(steps=1)
    prompt["22"] = hook("b")
    prompt["31"] = properties("30", ["22", 0])
    prompt["3"]["inputs"]["positive"] = ["31", 0]
    (only,) = evaluations(imported(prompt))
    assert [patch.file for patch in patches(only)] == [A, B]


def test_hooks_come_behind_the_models_own_loras(imported: Import) -> None:
    prompt = hooked(steps=1)
    prompt["10"] = node("LoraLoaderModelOnly", model=["4", 0], lora_name="b", strength_model=1.0)
    prompt["3"]["inputs"]["model"] = ["10", 0]
    graph = imported(prompt)
    own, other = Patch(file=B, strength=1.0), Patch(file=A, strength=0.5)
    assert patches(evaluations(graph)[0]) == (own, other)
    assert patches(evaluations(graph, "denoise")[0]) == (own,)


@pytest.mark.parametrize("class_type", ["CombineHooks2", "CombineHooks4", "CombineHooks8"])
def test_no_hooks_at_all_change_nothing(imported: Import, class_type: str) -> None:
    prompt = hooked()
    prompt["20"] = node(class_type)
    graph = imported(prompt)
    assert evaluations(graph) == []
    assert all(n.op != "cond_hooks" for n in graph.nodes)


@pytest.mark.parametrize(
    "class_type", ["ConditioningSetDefaultCombine", "ConditioningSetPropertiesAndCombine"]
)
def test_joined_texts_keep_their_hooks(imported: Import, class_type: str) -> None:
    """Hooks hang on what is joined, not on what it is joined to."""
    prompt = hooked(steps=1)
    is_default = class_type == "ConditioningSetDefaultCombine"
    more = {} if is_default else {"strength": 1.0, "set_cond_area": "default"}
    new = {"cond_DEFAULT" if is_default else "cond_NEW": ["7", 0]}
    prompt["31"] = node(class_type, cond=["6", 0], hooks=["20", 0], **new, **more)
    prompt["3"]["inputs"]["positive"] = ["31", 0]
    graph = imported(prompt)
    (marked,) = [n for n in graph.nodes if n.op == "cond_hooks"]
    assert graph.by_id()[dict(marked.inputs)["conditioning"].source].op != "text_encode"
    assert len(evaluations(graph)) == 1


def test_a_sampling_node_that_waits_keeps_its_hooks(
    registry: Registry, files: KnownFiles, check: Callable[[Prompt], Validated]
) -> None:
    prompt = hooked(steps=["51", 0])
    prompt["50"] = node("LoadImage", image=PICTURE)
    prompt["51"] = node("GetImageSize", image=["50", 0])
    valid = check(prompt)
    early = import_prompt(valid.prompt, valid.roots, registry, files)
    assert [n.id for n in early.nodes if n.op == "patch_fetch"] == ["20"]
    known = {(NodeId("51"), 0): 3}
    late = grow(early, valid.prompt, valid.roots, registry, files, known)
    verify(late)
    assert len(evaluations(late)) == 3


def test_a_run_under_hooks_waits_for_its_loras(
    registry: Registry, files: KnownFiles, check: Callable[[Prompt], Validated]
) -> None:
    """Asynchronous LoRA loading leaves it as it is: its first evaluation reads estimates of one."""
    prompt = hooked(steps=6)
    prompt["10"] = node("LoraLoaderModelOnly", model=["4", 0], lora_name="b", strength_model=1.0)
    prompt["3"]["inputs"]["model"] = ["10", 0]
    valid = check(prompt)
    options = PassOptions(async_lora=AsyncLora(steps=2))
    graph = import_prompt(valid.prompt, valid.roots, registry, files, options)
    assert [len(patches(n)) for n in evaluations(graph, "denoise")] == [1] * 6


def test_a_file_that_is_not_there_is_refused(check: Callable[[Prompt], Validated]) -> None:
    prompt = hooked()
    prompt["20"]["inputs"]["lora_name"] = "c"
    with pytest.raises(ImportRejected) as refused:
        check(prompt)
    first = refused.value.problems[0]
    assert (first.node_id, first.type) == ("20", "value_not_in_list")


def test_a_sampler_of_its_own_steps_takes_no_hooks(imported: Import) -> None:
    prompt = hooked()
    prompt["3"]["inputs"]["sampler_name"] = "dpm_adaptive"
    with pytest.raises(ImportRejected) as refused:
        imported(prompt)
    ((node_id, details, name),) = problems(refused.value)
    assert (node_id, name) == ("3", "positive")
    assert "no hook can patch its model" in details


def encoded(*, steps: int = 1, **inputs: object) -> Prompt:
    """Both texts encoded under LoRA a (0.5 on the denoiser, 0.25 on the encoder)."""
    prompt = text_to_image(steps=steps)
    prompt["20"] = node("CreateHookLora", lora_name="a", strength_model=0.5, strength_clip=0.25)
    options = {"apply_to_conds": True, "schedule_clip": False, **inputs}
    prompt["25"] = node("SetClipHooks", clip=["4", 1], hooks=["20", 0], **options)
    prompt["26"] = node("CLIPSetLastLayer", clip=["25", 0], stop_at_clip_layer=-2)
    for text in ("6", "7"):
        prompt[text]["inputs"]["clip"] = ["26", 0]
    return prompt


def test_hooks_on_a_text_encoder_hang_on_its_texts(imported: Import) -> None:
    """Through other nodes that change the encoder."""
    graph = imported(encoded())
    verify(graph)
    encoders = evaluations(graph, "text_encode")
    assert [patches(n) for n in encoders] == 2 * [(Patch(file=A, strength=0.25),)]
    assert all(n.model is not None and n.model.options for n in encoders)
    assert strengths(graph) == {"3/eval-0-hooks-0": 0.5}
    marked = [dict(n.inputs)["conditioning"].source for n in evaluations(graph, "cond_hooks")]
    assert marked == [n.id for n in encoders]


def test_a_text_encoder_may_have_its_lora_alone(imported: Import) -> None:
    graph = imported(encoded(apply_to_conds=False))
    assert len(patches(evaluations(graph, "text_encode")[0])) == 1
    assert evaluations(graph) == []


def test_the_first_keyframe_counts_for_a_text_encoder(imported: Import) -> None:
    prompt = encoded()
    prompt["40"] = node("CreateHookKeyframe", strength_mult=0.5, start_percent=0.0)
    prompt["21"] = node("SetHookKeyframes", hooks=["20", 0], hook_kf=["40", 0])
    prompt["25"]["inputs"]["hooks"] = ["21", 0]
    graph = imported(prompt)
    assert patches(evaluations(graph, "text_encode")[0]) == (Patch(file=A, strength=0.125),)


def test_a_schedule_of_a_text_encoder_is_refused(imported: Import) -> None:
    prompt = encoded(schedule_clip=True)
    assert evaluations(imported(prompt))
    for index, strength in enumerate((1.0, 0.5)):
        prompt[f"4{index}"] = node(
            "CreateHookKeyframe", strength_mult=strength, start_percent=index / 2
        )
    prompt["41"]["inputs"]["prev_hook_kf"] = ["40", 0]
    prompt["21"] = node("SetHookKeyframes", hooks=["20", 0], hook_kf=["41", 0])
    prompt["25"]["inputs"]["hooks"] = ["21", 0]
    with pytest.raises(ImportRejected) as refused:
        imported(prompt)
    ((node_id, details, name),) = problems(refused.value)
    assert (node_id, name) == ("25", "schedule_clip")
    assert "texts are encoded once" in details


def test_estimates_are_numbered_without_gaps(imported: Import) -> None:
    """However many sets of hooks count for nothing: the op looks no further than it must."""
    prompt = hooked(steps=2)
    prompt["40"] = node("CreateHookKeyframe", strength_mult=0.0, start_percent=0.0)
    for index in range(16):
        prompt[f"h{index}"] = hook("a", 0.1 * (index + 1))
        hooks: list[object] = [f"h{index}", 0]
        if index < 15:
            prompt[f"k{index}"] = node("SetHookKeyframes", hooks=hooks, hook_kf=["40", 0])
            hooks = [f"k{index}", 0]
        prompt[f"p{index}"] = properties("6", hooks)
        before = [f"c{index - 1}", 0] if index else ["6", 0]
        prompt[f"c{index}"] = node(
            "ConditioningCombine", conditioning_1=before, conditioning_2=[f"p{index}", 0]
        )
    prompt["3"]["inputs"]["positive"] = ["c15", 0]
    graph = imported(prompt)
    assert len(evaluations(graph)) == 2
    for step in evaluations(graph, "denoise"):
        assert [name for name, _ in step.inputs if name.startswith("estimates_")] == ["estimates_0"]
