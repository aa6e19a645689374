"""Nodes on pictures give what ComfyUI's give, and refuse what no machine holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.op_calls import folders_below, run_op
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.runtime.errors import Cancelled, NodeFailed, OutOfMemory
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.ops.base import Folders, OpResult

from .node_goldens import IMAGES, assert_recorded, cases, inputs

RECORDED = {
    "ImageScale": "image_scale",
    "ImageScaleBy": "image_scale_by",
    "ImageScaleToTotalPixels": "image_scale_to_total_pixels",
    "ImagePadForOutpaint": "image_pad",
    "EmptyImage": "empty_image",
    "GetImageSize": "image_size",
}


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return folders_below(tmp_path)


def load(picture: Path, folders: Folders, **changes: Any) -> OpResult:
    file = identify(picture)
    args = {"path": file.path, "size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns}
    return run_op("load_image", args | changes, folders=folders)


def interrupt() -> None:
    raise Cancelled("interrupted")


@pytest.mark.parametrize("case", [case for node in RECORDED for case in cases(node)], ids=str)
def test_a_node_gives_what_comfyui_gave(case: Any) -> None:
    result = run_op(RECORDED[case["node"]], inputs(case))
    for value, recorded in zip(result.outputs, case["outputs"], strict=True):
        assert_recorded(value, recorded[0])


@pytest.mark.parametrize("case", cases("ImageInvert"), ids=str)
def test_pictures_are_inverted_one_by_one(case: Any) -> None:
    given = inputs(case)["image"]
    (recorded,) = case["outputs"]
    for image, expected in zip(
        given if isinstance(given, list) else [given], recorded, strict=True
    ):
        (inverted,) = run_op("image_invert", {"image": image}).outputs
        assert_recorded(inverted, expected)


@pytest.mark.parametrize("case", cases("LoadImageMask"), ids=lambda case: str(case["inputs"]))
def test_a_channel_loads_as_comfyui_loads_it(case: Any) -> None:
    here = Folders(input=IMAGES, output=IMAGES, temp=IMAGES, saves=IMAGES)
    file = identify(IMAGES / case["inputs"]["image"])
    args = {"path": file.path, "size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns}
    channel = {"channel": case["inputs"]["channel"]}
    (mask,) = run_op("load_image_mask", args | channel, folders=here).outputs
    assert_recorded(mask, case["outputs"][0][0])


def test_a_channel_that_no_picture_has_is_refused(folders: Folders) -> None:
    path = folders.input / "x.png"
    path.write_bytes((IMAGES / "rgb.png").read_bytes())
    file = identify(path)
    args = {"path": file.path, "size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns}
    with pytest.raises(NodeFailed, match="no channel 'hue'"):
        run_op("load_image_mask", args | {"channel": "hue"}, folders=folders)


@pytest.mark.parametrize("case", cases("LoadImage"), ids=lambda case: case["inputs"]["image"])
def test_a_picture_loads_as_comfyui_loads_it(case: Any) -> None:
    here = Folders(input=IMAGES, output=IMAGES, temp=IMAGES, saves=IMAGES)
    result = load(IMAGES / case["inputs"]["image"], here)
    for value, recorded in zip(result.outputs, case["outputs"], strict=True):
        assert_recorded(value, recorded[0])


def test_only_pictures_in_the_folders_are_loaded(folders: Folders, tmp_path: Path) -> None:
    outside = tmp_path / "outside.png"
    outside.write_bytes((IMAGES / "rgb.png").read_bytes())
    link = folders.input / "link.png"
    os.symlink(outside, link)
    for path in (str(outside), str(link), str(folders.input / ".." / "outside.png")):
        with pytest.raises(ModelFileProblem, match="none of the folders"):
            load(outside, folders, path=path)


def test_a_picture_that_changed_is_refused(folders: Folders) -> None:
    path = folders.input / "x.png"
    path.write_bytes((IMAGES / "rgb.png").read_bytes())
    with pytest.raises(ModelFileProblem, match="was changed"):
        load(path, folders, mtime_ns=identify(path).mtime_ns - 1)


def test_a_missing_picture_is_named(folders: Folders) -> None:
    args = {"path": str(folders.input / "gone.png"), "size_bytes": 1, "mtime_ns": 1}
    with pytest.raises(ModelFileProblem, match=r"gone\.png: there is no such file"):
        run_op("load_image", args, folders=folders)


@pytest.mark.parametrize(
    ("width", "height", "count", "error"),
    [
        (16384, 16384, 2, OutOfMemory),
        (1, 1, 2**40, OutOfMemory),
        (2**40, 1, 1, NodeFailed),
        (0, 8, 1, NodeFailed),
        (8, -1, 1, NodeFailed),
    ],
)
def test_pictures_of_impossible_size_are_not_begun(
    width: int, height: int, count: int, error: type[NodeFailed]
) -> None:
    args = {"width": width, "height": height, "batch_size": count, "color": 0}
    with pytest.raises(error):
        run_op("empty_image", args)
    image = torch.zeros(1, 4, 4, 3).expand(min(count, 3), 4, 4, 3)
    if count < 3 and width > 0:
        scaling = {"upscale_method": "area", "crop": "disabled", "width": width, "height": height}
        with pytest.raises(error):
            run_op("image_scale", {"image": image, **scaling})


@pytest.mark.parametrize("crop", ["disabled", "center"])
@pytest.mark.parametrize("method", ["nearest-exact", "bilinear", "area", "bicubic", "lanczos"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_any_shape_scales_to_any_other(method: str, crop: str, channels: int) -> None:
    for height, width, new_height, new_width in ((1, 1, 5, 3), (1, 200, 200, 1), (7, 3, 1, 1)):
        args = {
            "image": torch.rand(2, height, width, channels),
            "upscale_method": method,
            "width": new_width,
            "height": new_height,
            "crop": crop,
        }
        (scaled,) = run_op("image_scale", args).outputs
        assert isinstance(scaled, torch.Tensor)
        assert scaled.shape == (2, new_height, new_width, channels)


def test_an_unknown_method_is_named() -> None:
    args = {"image": torch.rand(1, 4, 4, 3), "width": 2, "height": 2, "crop": "disabled"}
    with pytest.raises(NodeFailed, match="unknown upscale_method 'bislerp'"):
        run_op("image_scale", {**args, "upscale_method": "bislerp"})


@pytest.mark.parametrize(
    "image", [None, 3, torch.zeros(4, 4, 3), torch.zeros(1, 4, 4, 2), torch.zeros(0, 4, 4, 3)]
)
def test_what_is_no_picture_is_refused(image: object) -> None:
    with pytest.raises(NodeFailed, match="input image must be"):
        run_op("image_size", {"image": image})


def test_scaling_can_be_interrupted() -> None:
    with pytest.raises(Cancelled):
        run_op("image_scale", {"image": torch.rand(1, 4, 4, 3)}, check_cancelled=interrupt)
