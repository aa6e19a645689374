"""Nodes that save animations and load saved pictures: what validation lets pass, and their ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.ir import Graph

from ..known_files import PICTURE
from ..prompts import Prompt, node

SETTINGS: dict[str, dict[str, object]] = {
    "SaveAnimatedWEBP": {"fps": 6.0, "lossless": True, "quality": 80, "method": "default"},
    "SaveAnimatedPNG": {"fps": 6.0, "compress_level": 4},
}
each_saver = pytest.mark.parametrize("class_type", SETTINGS)


def animation(class_type: str, **changes: object) -> Prompt:
    settings = {"filename_prefix": "a", **SETTINGS[class_type], **changes}
    return {
        "1": node("EmptyImage", width=8, height=8, batch_size=3, color=0),
        "2": node(class_type, images=["1", 0], **settings),
    }


def reasons(check: Callable[[Prompt], Validated], prompt: Prompt) -> list[tuple[str, Any]]:
    with pytest.raises(ImportRejected) as caught:
        check(prompt)
    return [(p.type, p.extra_info["input_name"]) for p in caught.value.problems]


@each_saver
def test_an_animation_is_told_of_its_request(
    imported: Callable[[Prompt], Graph], class_type: str
) -> None:
    saving = imported(animation(class_type)).nodes[-1]
    assert saving.op.startswith("save_animated_")
    assert saving.hidden == ("prompt", "extra_pnginfo")


@each_saver
@pytest.mark.parametrize("prefix", ["../a", "/a", "a/../../b", "..\\a"])
def test_a_prefix_may_not_leave_the_output_folder(
    check: Callable[[Prompt], Validated], class_type: str, prefix: str
) -> None:
    prompt = animation(class_type, filename_prefix=prefix)
    assert reasons(check, prompt) == [("custom_validation_failed", "filename_prefix")]


@each_saver
def test_no_frame_lasts_for_ever(check: Callable[[Prompt], Validated], class_type: str) -> None:
    assert reasons(check, animation(class_type, fps=0.0)) == [("value_smaller_than_min", "fps")]


def loaded(name: object) -> Prompt:
    return {
        "1": node("LoadImageOutput", image=name),
        "2": node("PreviewImage", images=["1", 0]),
    }


def test_a_saved_picture_is_loaded_like_any_other(imported: Callable[[Prompt], Graph]) -> None:
    first = imported(loaded(PICTURE)).nodes[0]
    assert first.op == "load_image"
    assert dict(first.params)["path"] == f"/files/{PICTURE}"


@pytest.mark.parametrize("name", ["gone.png [output]", "../x.png [output]", 5, None])
def test_a_picture_that_is_not_there_is_refused(
    check: Callable[[Prompt], Validated], name: object
) -> None:
    assert reasons(check, loaded(name)) == [("custom_validation_failed", "image")]
