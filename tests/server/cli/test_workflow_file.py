"""Reading workflow files and changing inputs from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.prompts import txt2img
from nodeloom.graph_import.workflow_file import NodeTable
from nodeloom.server.any_workflow import Opened
from nodeloom.server.cli.workflow_file import (
    BadSetting,
    node_name,
    note_lines,
    read_workflow,
    with_settings,
)
from nodeloom.server.embedded import NoWorkflow
from PIL import Image
from PIL.PngImagePlugin import PngInfo


def opened(path: Path) -> Opened:
    return read_workflow(path, lambda: NodeTable({}))


def test_json_with_a_byte_order_mark_and_a_posted_body_are_read(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text("\ufeff" + json.dumps({"prompt": txt2img(), "client_id": "x"}))
    assert opened(path).prompt == txt2img()


def test_a_picture_gives_the_workflow_that_it_carries(tmp_path: Path) -> None:
    info = PngInfo()
    info.add_text("prompt", json.dumps(txt2img(seed=5)))
    Image.new("RGB", (4, 4)).save(tmp_path / "w.png", pnginfo=info)
    assert opened(tmp_path / "w.png").prompt == txt2img(seed=5)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[1]", "neither a workflow"),
        (b'{"a": 1}', "neither a workflow"),
        (b'{"nodes": [{"id": 1}]}', "has no type"),
        (b"\xff\xd8\xff", "the picture can't be read"),
        (b"\xfe\xff", "neither a picture"),
        (b"\x89PNG\r\n\x1a\n", "cut off"),
    ],
)
def test_what_is_no_workflow_is_refused_by_file_and_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "w"
    path.write_bytes(content)
    with pytest.raises(NoWorkflow) as raised:
        opened(path)
    assert reason in raised.value.message
    assert str(path) in raised.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoWorkflow, match="No such file"):
        opened(tmp_path / "none.json")


def test_settings_are_json_where_they_can_be_and_text_elsewhere() -> None:
    settings = ["3.seed=7", "6.text=a = b.c", "3.cfg=1.5", '9.filename_prefix="7"', "7.text=NaN"]
    changed = with_settings(txt2img(), settings)
    assert changed["3"]["inputs"]["seed"] == 7
    assert changed["3"]["inputs"]["cfg"] == 1.5
    assert changed["6"]["inputs"]["text"] == "a = b.c"
    assert changed["7"]["inputs"]["text"] == "NaN"
    assert changed["9"]["inputs"]["filename_prefix"] == "7"


def test_the_given_prompt_is_left_as_it_was() -> None:
    prompt = txt2img(seed=1)
    with_settings(prompt, ["3.seed=2"])
    assert prompt == txt2img(seed=1)


def test_ids_and_inputs_may_hold_dots() -> None:
    prompt = {"1.2": {"class_type": "X", "inputs": {"a.b": 1}}}
    assert with_settings(prompt, ["1.2.a.b=2"])["1.2"]["inputs"]["a.b"] == 2


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("seed=3", "NODE.input=value"),
        ("3.seed", "NODE.input=value"),
        ("33.seed=3", "CLIPTextEncode #6"),
        ("3.sed=3", "sampler_name"),
    ],
)
def test_unknown_targets_list_what_there_is(setting: str, said: str) -> None:
    with pytest.raises(BadSetting) as raised:
        with_settings(txt2img(), [setting])
    assert said in raised.value.message


def test_a_node_is_called_by_its_title_or_class() -> None:
    prompt = {"1": {"class_type": "A", "_meta": {"title": "T"}}, "2": {"class_type": "B"}}
    assert [node_name(prompt, node_id) for node_id in ("1", "2", "3")] == ["T #1", "B #2", "#3"]


def test_nested_prompts_are_unwrapped_only_when_they_are_graphs(tmp_path: Path) -> None:
    prompt = {"prompt": {"class_type": "A", "inputs": {}}}  # a node that is called `prompt`
    path = tmp_path / "w.json"
    path.write_text(json.dumps(prompt))
    assert opened(path).prompt == prompt


def test_the_editors_format_is_converted_and_explained(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps({"nodes": [{"id": 7, "type": "Odd", "title": "T"}], "links": []}))
    read = opened(path)
    assert read.prompt["7"]["class_type"] == "Odd"
    assert list(note_lines(read)) == ["Odd #7: node class 'Odd' is not known here"]
