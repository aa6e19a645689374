"""Animated files hold every frame, tell of their request, and are named as ComfyUI names them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from kit.op_calls import folders_below, run_op
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.ops.base import Folders
from nodeloom.server.embedded import embedded
from PIL import Image, ImageSequence

HIDDEN = {"prompt": '{"1":{"class_type":"Ü"}}', "extra_pnginfo": '{"workflow":{"nodes":[]}}'}
TEXTS = {"prompt": {"1": {"class_type": "Ü"}}, "workflow": {"nodes": []}}
WEBP = {"lossless": True, "quality": 80, "method": "fastest"}
KINDS = {
    "save_animated_webp": ({"filename_prefix": "a/x", "fps": 6.0, **WEBP}, "x_00001_.webp"),
    "save_animated_png": (
        {"filename_prefix": "a/x", "fps": 6.0, "compress_level": 1},
        "x_00001_.png",
    ),
}
each_kind = pytest.mark.parametrize("op", KINDS)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return folders_below(tmp_path)


def frames_of(seed: int = 1, count: int = 3) -> torch.Tensor:
    return torch.rand(count, 6, 8, 3, generator=torch.Generator().manual_seed(seed))


@each_kind
def test_a_file_holds_every_frame_for_its_time(op: str, folders: Folders) -> None:
    args, name = KINDS[op]
    images = frames_of()
    result = run_op(op, {**args, "images": images}, folders=folders, hidden=HIDDEN)
    saved = {"filename": name, "subfolder": "a", "type": "output"}
    assert result.ui == {"images": [saved], "animated": [True]}
    with Image.open(folders.output / "a" / name) as picture:
        read = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(picture)]
        assert int(picture.info["duration"]) == 166
    assert np.array_equal(np.stack(read), (images * 255.0).to(torch.uint8).numpy())


@each_kind
def test_a_file_tells_of_its_request(op: str, folders: Folders) -> None:
    args, name = KINDS[op]
    run_op(op, {**args, "images": frames_of()}, folders=folders, hidden=HIDDEN)
    found = embedded((folders.output / "a" / name).read_bytes())
    assert {key: json.loads(text) for key, text in found.items()} == TEXTS


@each_kind
def test_nothing_is_told_where_that_is_switched_off(op: str, folders: Folders) -> None:
    args, name = KINDS[op]
    run_op(
        op,
        {**args, "images": frames_of()},
        folders=folders,
        hidden=HIDDEN,
        is_metadata_disabled=True,
    )
    data = (folders.output / "a" / name).read_bytes()
    assert b"class_type" not in data


@each_kind
def test_a_retry_saves_nothing_twice_and_another_node_gets_the_next_name(
    op: str, folders: Folders
) -> None:
    args, name = KINDS[op]
    run_op(op, {**args, "images": frames_of()}, folders=folders)
    run_op(op, {**args, "images": frames_of()}, folders=folders)
    run_op(op, {**args, "images": frames_of(2)}, folders=folders, node="2")
    names = sorted(path.name for path in (folders.output / "a").iterdir())
    assert names == [name, name.replace("1", "2")]


@each_kind
def test_a_prefix_may_not_leave_the_folder(op: str, folders: Folders) -> None:
    args = {**KINDS[op][0], "images": frames_of(), "filename_prefix": "../x"}
    with pytest.raises(NodeFailed, match="leaves the folder"):
        run_op(op, args, folders=folders)


def test_a_webp_of_impossible_size_is_not_begun(folders: Folders) -> None:
    args = {**KINDS["save_animated_webp"][0], "images": torch.zeros(1, 1, 20_000, 3)}
    with pytest.raises(NodeFailed, match="at most 16383 pixels"):
        run_op("save_animated_webp", args, folders=folders)


@pytest.mark.parametrize(
    ("op", "name", "value"),
    [
        ("save_animated_webp", "fps", 0.0),
        ("save_animated_webp", "fps", 1e-300),
        ("save_animated_png", "fps", -1.0),
        ("save_animated_png", "fps", float("nan")),
        ("save_animated_webp", "quality", 101),
        ("save_animated_png", "compress_level", -1),
    ],
)
def test_numbers_that_came_over_an_edge_are_looked_at(
    op: str, name: str, value: float, folders: Folders
) -> None:
    args = {**KINDS[op][0], "images": frames_of(), name: value}
    with pytest.raises(NodeFailed, match=f"input {name} is {value}, not from"):
        run_op(op, args, folders=folders)


def test_a_webp_tells_of_as_many_texts_as_it_can(folders: Folders) -> None:
    args = {**KINDS["save_animated_webp"][0], "images": frames_of()}
    extra = {f"key{index}": index for index in range(5)}
    hidden = {**HIDDEN, "extra_pnginfo": json.dumps(extra)}
    run_op("save_animated_webp", args, folders=folders, hidden=hidden)
    with Image.open(folders.output / "a" / "x_00001_.webp") as picture:
        told = list(picture.getexif().values())
    assert sorted(told)[:5] == [f"key{index}:{index}" for index in range(5)]
    hidden = {**HIDDEN, "extra_pnginfo": json.dumps({**extra, "key5": 5})}
    with pytest.raises(NodeFailed, match=r"6 texts at most, and .* are 7"):
        run_op("save_animated_webp", args, folders=folders, hidden=hidden, node="2")


def test_a_webp_of_impossible_length_is_not_begun(folders: Folders) -> None:
    args = {**KINDS["save_animated_webp"][0], "images": torch.zeros(21_475, 1, 1, 3), "fps": 0.01}
    with pytest.raises(NodeFailed, match="lasts 2147483647 ms at most"):
        run_op("save_animated_webp", args, folders=folders)
