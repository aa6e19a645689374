"""What the recordings don't show: files, sockets, long chains, deep cycles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.comfy.validate import MAX_LISTED_OUTPUTS, Validated
from nodeloom.graph_import.errors import ImportProblem, ImportRejected
from nodeloom.graph_import.handles import Role

from ..known_files import CHECKPOINT, KnownFiles, sd15
from ..prompts import Prompt, node, text_to_image

Check = Callable[[Prompt], Validated]


def problems(check: Check, prompt: Prompt) -> list[ImportProblem]:
    with pytest.raises(ImportRejected) as caught:
        check(prompt)
    assert caught.value.type == "prompt_outputs_failed_validation"
    return list(caught.value.problems)


def test_a_whole_prompt_passes_and_its_literals_are_converted(check: Check) -> None:
    prompt = text_to_image(steps="3", cfg=7)
    valid = check(prompt)
    stored = valid.prompt.to_json()
    assert valid.roots == ("9",)
    assert valid.problems == ()
    assert repr(stored["3"]["inputs"]["steps"]) == "3"
    assert repr(stored["3"]["inputs"]["cfg"]) == "7.0"
    assert prompt["3"]["inputs"]["steps"] == "3"  # the client's own object is left alone


def test_all_problems_are_reported_not_the_first(check: Check) -> None:
    prompt = text_to_image(steps=0, cfg="much", sampler_name="magic", positive=["4", 0])
    del prompt["5"]["inputs"]["width"]
    prompt["8"]["inputs"]["vae"] = ["44", 0]
    prompt["9"]["inputs"]["images"] = ["8"]
    prompt["10"] = node("PreviewImage", images=["8", 0])
    found = {(p.node_id, p.type, p.extra_info.get("input_name")) for p in problems(check, prompt)}
    assert found == {
        ("3", "value_smaller_than_min", "steps"),
        ("3", "invalid_input_type", "cfg"),
        ("3", "value_not_in_list", "sampler_name"),
        ("3", "return_type_mismatch", "positive"),
        ("5", "required_input_missing", "width"),
        ("8", "exception_during_inner_validation", "images"),
        ("9", "bad_linked_input", "images"),
    }


def test_a_sampler_that_nobody_knows_is_not_in_the_list(check: Check) -> None:
    (problem,) = problems(check, text_to_image(sampler_name="uni_pcx"))
    assert problem.type == "value_not_in_list"
    assert problem.details.startswith("sampler_name: 'uni_pcx' not in (list of length")


def test_a_literal_where_only_a_link_fits_is_refused_by_name(check: Check) -> None:
    (problem,) = problems(check, text_to_image(model="dream"))
    assert (problem.node_id, problem.type) == ("3", "invalid_input_type")
    assert problem.details == "model, dream, MODEL can only come over a link, not as str"


@pytest.mark.parametrize(
    ("checkpoint", "details"),
    [
        ("the file is truncated", "ckpt_name - the file is truncated"),
        (
            sd15(CHECKPOINT, frozenset({Role.TEXT_ENCODER, Role.VAE})),
            f"ckpt_name - {CHECKPOINT} has no denoiser",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_refused_with_the_reason(
    check: Check, files: KnownFiles, checkpoint: object, details: str
) -> None:
    files.checkpoints[CHECKPOINT] = checkpoint  # type: ignore[assignment]  # one of the two
    (problem,) = problems(check, text_to_image())
    assert (problem.node_id, problem.type) == ("4", "custom_validation_failed")
    assert problem.details == details
    assert problem.extra_info == {"input_name": "ckpt_name"}


def test_a_checkpoint_that_is_not_there_is_not_in_the_list(check: Check) -> None:
    prompt = text_to_image()
    prompt["4"]["inputs"]["ckpt_name"] = "../../etc/passwd"
    (problem,) = problems(check, prompt)
    assert problem.type == "value_not_in_list"
    assert problem.details == f"ckpt_name: '../../etc/passwd' not in ['{CHECKPOINT}']"


@pytest.mark.parametrize("name", ["nope.png", "../x.png", "", 5, {"a": 1}])
def test_a_picture_that_is_not_there_is_an_invalid_image_file(check: Check, name: object) -> None:
    prompt = {"1": node("LoadImage", image=name), "2": node("PreviewImage", images=["1", 0])}
    (problem,) = problems(check, prompt)
    assert problem.type == "custom_validation_failed"
    assert problem.details == f"image - Invalid image file: {name}"


def test_a_picture_outside_the_list_passes_if_the_file_is_there(check: Check) -> None:
    prompt = {
        "1": node("LoadImage", image="cat.png [input]"),
        "2": node("PreviewImage", images=["1", 0]),
    }
    assert check(prompt).roots == ("2",)


def test_lists_of_files_are_asked_for_once_per_prompt(check: Check, files: KnownFiles) -> None:
    prompt = text_to_image()
    prompt |= {f"l{index}": prompt["4"] for index in range(50)}
    prompt |= {
        f"t{index}": node("CLIPTextEncode", text="x", clip=[f"l{index}", 1]) for index in range(50)
    }
    prompt |= {
        f"k{index}": {
            **prompt["3"],
            "inputs": {**prompt["3"]["inputs"], "positive": [f"t{index}", 0]},
        }
        for index in range(50)
    }
    for index in range(50):
        prompt[f"d{index}"] = node("VAEDecode", samples=[f"k{index}", 0], vae=["4", 2])
        prompt[f"s{index}"] = node("PreviewImage", images=[f"d{index}", 0])
    assert len(check(prompt).roots) == 51
    assert files.num_listings <= 2


def chain(length: int, source: list[object]) -> Prompt:
    prompt = {}
    for index in range(length):
        link = [str(index - 1), 0] if index else source
        inputs = {"upscale_method": "area", "width": 8, "height": 8, "crop": "disabled"}
        prompt[str(index)] = node("ImageScale", image=link, **inputs)
    prompt["out"] = node("PreviewImage", images=[str(length - 1), 0])
    return prompt


def test_a_chain_of_thousands_is_no_problem(check: Check) -> None:
    prompt = chain(5000, ["source", 0])
    prompt["source"] = node("EmptyImage", width=8, height=8, batch_size=1, color=0)
    assert check(prompt).roots == ("out",)


def test_a_cycle_of_thousands_is_named_once(check: Check) -> None:
    (problem,) = problems(check, chain(5000, ["4999", 0]))
    assert problem.type == "dependency_cycle"
    assert problem.node_id == "0"
    assert problem.details.startswith("image: 4999 -> 0 -> 1 -> 2 -> ")
    assert len(problem.extra_info["cycle"]) == 5001  # type: ignore[arg-type]  # a list


def test_an_output_beside_a_cycle_runs(check: Check) -> None:
    prompt = text_to_image() | chain(0, ["loop", 0])
    prompt["loop"] = node("VAEDecode", samples=["enc", 0], vae=["4", 2])
    prompt["enc"] = node("VAEEncode", pixels=["loop", 0], vae=["4", 2])
    prompt["out"] = node("PreviewImage", images=["loop", 0])
    valid = check(prompt)
    assert valid.roots == ("9",)
    assert [(p.node_id, p.type) for p in valid.problems] == [("enc", "dependency_cycle")]
    assert valid.problems[0].details == "pixels: loop -> enc -> loop"
    assert valid.dependent_outputs == {"enc": ("out",)}


def test_an_unconnected_broken_node_does_not_matter(check: Check) -> None:
    assert check(text_to_image() | {"x": {"class_type": "KSampler"}}).roots == ("9",)


def test_thousands_of_failed_outputs_give_an_answer_of_bounded_size(check: Check) -> None:
    prompt = {str(index): node("PreviewImage") for index in range(3000)}
    with pytest.raises(ImportRejected) as caught:
        check(prompt)
    listed = caught.value.dependent_outputs
    assert len(caught.value.problems) == 3000
    assert all(root in listed[root] for root in prompt)
    assert sum(len(outputs) for outputs in listed.values()) <= MAX_LISTED_OUTPUTS + len(prompt)
