"""Rows of picture nodes: names of ops, growing inputs, choices that bring inputs, lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nodeloom.graph_import.comfy.importer import import_prompt
from nodeloom.graph_import.comfy.validate import validate
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.ir import Graph
from nodeloom.graph_import.nodes.plain import op_name
from nodeloom.graph_import.nodes.registry import Registry

from ..known_files import KnownFiles
from ..prompts import Prompt, node

PICTURE = node("EmptyImage", width=8, height=8, batch_size=1, color=0)


def saved(class_type: str, **inputs: object) -> Prompt:
    """Picture 1, changed by node 2, saved."""
    return {
        "1": PICTURE,
        "2": {"class_type": class_type, "inputs": inputs},
        "3": node("SaveImage", images=["2", 0], filename_prefix="x"),
    }


@pytest.fixture
def imported(registry: Registry, files: KnownFiles) -> Callable[[Prompt], Graph]:
    def run(prompt: Prompt) -> Graph:
        valid = validate(prompt, registry, files)
        return import_prompt(valid.prompt, valid.roots, registry, files)

    return run


def resized(**inputs: object) -> Prompt:
    return saved(
        "ResizeImageMaskNode", **{"input": ["1", 0], "scale_method": "area", **dotted(inputs)}
    )


def dotted(inputs: dict[str, object]) -> dict[str, object]:
    return {name.replace("__", "."): value for name, value in inputs.items()}


@pytest.mark.parametrize(
    ("class_type", "op"),
    [
        ("ImageRGBToYUV", "image_rgb_to_yuv"),
        ("ImageYUVToRGB", "image_yuv_to_rgb"),
        ("Canny", "canny"),
        ("PorterDuffImageComposite", "porter_duff_image_composite"),
    ],
)
def test_an_op_is_named_after_its_class(class_type: str, op: str) -> None:
    assert op_name(class_type) == op


def test_growing_inputs_become_numbered_arguments_without_gaps(imported: Any) -> None:
    prompt = saved("BatchImagesNode", **{f"images.image{i}": ["1", 0] for i in (10, 2, 0)})
    (batched,) = (n for n in imported(prompt).nodes if n.op == "batch_images_node")
    assert {name for name, _ in batched.inputs} == {"images_0", "images_1", "images_2"}


def test_a_choice_brings_the_inputs_of_its_option_alone(imported: Any) -> None:
    prompt = resized(resize_type="scale width", resize_type__width=64, resize_type__megapixels=2.0)
    (resize,) = (n for n in imported(prompt).nodes if n.op == "resize_image_mask_node")
    assert dict(resize.params) == {
        "resize_type": "scale width",
        "scale_method": "area",
        "width": 64,
    }


@pytest.mark.parametrize(
    ("inputs", "detail"),
    [
        ({"resize_type": "scale width"}, "resize_type.width"),
        ({"resize_type": "by hand"}, "no way 'by hand'"),
        ({"resize_type": "scale width", "resize_type__width": 16385}, "resize_type.width"),
    ],
)
def test_an_option_without_its_inputs_is_refused(
    imported: Any, inputs: dict[str, object], detail: str
) -> None:
    with pytest.raises(ImportRejected) as refused:
        imported(resized(**inputs))
    assert detail in str([problem.details for problem in refused.value.problems])


def test_a_list_of_pictures_waits_for_its_length(imported: Any) -> None:
    graph = imported(saved("RebatchImages", images=["1", 0], batch_size=1))
    assert [pending.id for pending in graph.pending] == ["3"]
    (rebatch,) = (n for n in graph.nodes if n.op == "rebatch_images")
    assert [port.name for port in rebatch.outputs] == ["IMAGE", "IMAGE_length"]
    assert dict(rebatch.params) == {"batch_size": 1}
