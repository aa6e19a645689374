"""Saved pictures have ComfyUI's names, pixels and text chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kit.op_calls import folders_below, run_op
from nodeloom.runtime.errors import Cancelled, NodeFailed
from nodeloom.runtime.ops.base import Folders
from PIL import Image

from .node_goldens import document, tensors

HIDDEN = {"prompt": '{"1":{"class_type":"X"}}', "extra_pnginfo": '{"workflow":{"nodes":[]}}'}


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return folders_below(tmp_path)


def save(folders: Folders, images: torch.Tensor, **changes: Any) -> list[dict[str, str]]:
    arguments = {"images": images, "filename_prefix": "x", "folder": "output"}
    names = {name: changes.pop(name) for name in ("filename_prefix", "folder") if name in changes}
    result = run_op("save_image", arguments | names, folders=folders, **changes)
    assert result.outputs == ()
    assert result.ui is not None
    saved: list[dict[str, str]] = result.ui["images"]  # type: ignore[assignment]  # JSON
    return saved


def batches() -> Iterator[list[Any]]:
    """The recorded pictures, those of one batch together: equal input and prefix, following."""
    group: list[Any] = []
    for recorded in document()["save_image"]:
        size = document()["inputs"][recorded["input"]]["shape"][0]
        group.append(recorded)
        if len(group) == size:
            yield group
            group = []


def test_pictures_are_saved_as_comfyui_saves_them(folders: Folders) -> None:
    count = 0
    for number, batch in enumerate(batches()):
        images = tensors()[f"in/{batch[0]['input']}"]
        prefix = batch[0]["filename_prefix"]
        saved = save(folders, images, filename_prefix=prefix, request=str(number), hidden=HIDDEN)
        assert saved == [recorded["ui"] for recorded in batch]
        for recorded in batch:
            ui = recorded["ui"]
            with Image.open(folders.output / ui["subfolder"] / ui["filename"]) as picture:
                assert picture.mode == recorded["mode"]
                assert picture.text == recorded["text"]  # type: ignore[attr-defined]  # a PNG's
                pixels = np.array(picture)
            assert np.array_equal(pixels, tensors()[recorded["pixels_uint8"]].numpy())
            count += 1
    assert count == len(document()["save_image"])


def test_a_preview_goes_to_temp_under_letters_of_its_own(folders: Folders) -> None:
    images = torch.rand(2, 4, 4, 3)
    first = save(folders, images, folder="temp", node="5")
    other = save(folders, images, folder="temp", node="6")
    assert [one["type"] for one in first] == ["temp", "temp"]
    names = [one["filename"] for one in (*first, *other)]
    letters = {name.removeprefix("ComfyUI_temp_")[:5] for name in names}
    assert len(letters) == 2
    assert all(word.isalpha() and word.islower() for word in letters)
    assert [name[18:] for name in names] == ["_00001_.png", "_00002_.png"] * 2
    assert sorted(path.name for path in folders.temp.iterdir()) == sorted(names)
    assert save(folders, images, folder="temp", node="5") == first
    assert list(folders.output.iterdir()) == []


def test_pictures_are_saved_without_metadata_if_told_so(folders: Folders) -> None:
    (saved,) = save(folders, torch.rand(1, 4, 4, 3), hidden=HIDDEN, is_metadata_disabled=True)
    with Image.open(folders.output / saved["filename"]) as picture:
        assert picture.text == {}  # type: ignore[attr-defined]  # a PNG's


def test_text_chunks_hold_any_text(folders: Folders) -> None:
    extra = {"workflow": {"text": "ключ 🦊 é"}, "note": "a\nb", "empty": None}
    hidden = {"prompt": '{"1": "\\u0000"}', "extra_pnginfo": json.dumps(extra)}
    (saved,) = save(folders, torch.rand(1, 4, 4, 3), hidden=hidden)
    with Image.open(folders.output / saved["filename"]) as picture:
        chunks = dict(picture.text)  # type: ignore[attr-defined]  # a PNG's
    assert json.loads(chunks.pop("prompt")) == {"1": "\0"}
    assert {key: json.loads(text) for key, text in chunks.items()} == extra


@pytest.mark.parametrize("key", ["", "x" * 80, "ключ", "a\nb"])
def test_a_key_that_png_cannot_hold_is_named(folders: Folders, key: str) -> None:
    hidden = {"extra_pnginfo": json.dumps({key: 1})}
    with pytest.raises(NodeFailed, match="can't be the keyword of a PNG chunk"):
        save(folders, torch.rand(1, 4, 4, 3), hidden=hidden)
    assert list(folders.output.iterdir()) == []


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_pictures_keep_their_channels(folders: Folders, channels: int, mode: str) -> None:
    (saved,) = save(folders, torch.rand(1, 4, 5, channels))
    with Image.open(folders.output / saved["filename"]) as picture:
        assert (picture.mode, picture.size) == (mode, (5, 4))


def test_only_the_two_folders_are_written_to(folders: Folders) -> None:
    images = torch.rand(1, 4, 4, 3)
    with pytest.raises(NodeFailed, match="can't be saved to 'input'"):
        save(folders, images, folder="input")
    with pytest.raises(NodeFailed, match="leaves the folder"):
        save(folders, images, filename_prefix="../input/x")
    assert list(folders.input.iterdir()) == []


def test_an_interrupted_save_goes_on_where_it_stopped(folders: Folders) -> None:
    images = torch.rand(3, 4, 4, 3)
    calls = 0

    def interrupt_at_the_third() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Cancelled("interrupted")

    with pytest.raises(Cancelled):
        save(folders, images, check_cancelled=interrupt_at_the_third)
    before = {path.name: path.stat().st_ino for path in folders.output.iterdir()}
    saved = save(folders, images)
    assert [one["filename"] for one in saved] == [f"x_0000{n}_.png" for n in (1, 2, 3)]
    after = {path.name: path.stat().st_ino for path in folders.output.iterdir()}
    assert set(before) == {"x_00001_.png", "x_00002_.png"}
    assert {name: after[name] for name in before} == before
