"""`nodeloom convert` as a person calls it: a process, no server."""

from __future__ import annotations

import json
from pathlib import Path

from kit import commands
from kit.prompts import txt2img
from PIL import Image
from PIL.PngImagePlugin import PngInfo

WORKFLOW = {
    "nodes": [
        {"id": 1, "type": "EmptyImage", "widgets_values": [40, 24, 1, 255], "outputs": [{}]},
        {"id": 2, "type": "PreviewImage", "inputs": [{"name": "images", "link": 1}]},
        {"id": 3, "type": "PreviewImage", "mode": 2},
    ],
    "links": [[1, 1, 0, 2, 0, "IMAGE"]],
}


def test_the_prompt_goes_to_stdout_and_the_notes_to_stderr(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(WORKFLOW))
    done = commands.run("convert", path, "--base-directory", tmp_path)
    prompt = json.loads(done.stdout)
    assert done.returncode == 0
    assert prompt["1"]["inputs"] == {"width": 40, "height": 24, "batch_size": 1, "color": 255}
    assert prompt["2"]["inputs"] == {"images": ["1", 0]}
    assert prompt.keys() == {"1", "2"}
    assert done.stderr == "PreviewImage #3: muted: not run\n"


def test_unknown_classes_are_named_and_the_status_is_1(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    node = {"id": 7, "type": "OddNode", "properties": {"cnr_id": "odd-pack"}}
    path.write_text(json.dumps({"nodes": [node]}))
    done = commands.run("convert", path, "--notes", "--base-directory", tmp_path)
    [note] = json.loads(done.stdout)["notes"]
    assert done.returncode == 1
    assert (note["kind"], note["node"], note["pack"]) == ("unknown", "7", "odd-pack")


def test_a_picture_gives_what_it_was_made_by(tmp_path: Path) -> None:
    info = PngInfo()
    info.add_text("prompt", json.dumps(txt2img()))
    Image.new("RGB", (4, 4)).save(tmp_path / "w.png", pnginfo=info)
    done = commands.run("convert", tmp_path / "w.png")
    assert done.returncode == 0
    assert json.loads(done.stdout) == txt2img()


def test_what_is_no_workflow_is_refused_with_status_2(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "w.png")
    done = commands.run("convert", tmp_path / "w.png")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "w.png: the picture carries no workflow" in done.stderr
