"""`nodeloom demo` from an empty folder: a picture, a page, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import signal
import urllib.request
from pathlib import Path

import psutil
import pytest
from kit import commands
from nodeloom import web, workflows
from PIL import Image

LIMIT_S = 120
FOLDER = Path(workflows.__file__).parent
PICTURES = sorted((FOLDER / "pictures").glob("*.png"))


def is_of(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(str(folder) in argument for argument in process.cmdline())
    except psutil.Error:
        return False


def test_a_first_picture_is_drawn_and_the_server_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = commands.run("demo", "--directory", folder, "--port", "0")
    assert done.returncode == 0, done.stderr
    picture, page = done.stdout.splitlines()
    path = Path(picture.removeprefix("picture: "))
    assert path.parent == folder / "output"
    with Image.open(path) as image:
        assert image.size == (128, 128)
    assert page.startswith("page: http://127.0.0.1:")
    assert [p for p in psutil.process_iter() if is_of(p, folder)] == []
    assert {p.name for p in (folder / "input").glob("*.png")} == {p.name for p in PICTURES}


def test_a_kept_server_shows_its_page_until_ctrl_c(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with commands.start("demo", "--directory", folder, "--port", "0", "--keep") as process:
        page = commands.read_until(process, "page: ").removeprefix("page: ").strip()
        with urllib.request.urlopen(page, timeout=LIMIT_S) as answer:
            assert b"nodeloom" in answer.read()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert [p for p in psutil.process_iter() if is_of(p, folder)] == []


def test_a_server_that_can_not_start_is_said(tmp_path: Path) -> None:
    done = commands.run("demo", "--directory", tmp_path, "--port", "99999")
    assert done.returncode == 1
    assert "the server did not start" in done.stderr


def test_the_page_runs_the_same_sample_as_the_demo() -> None:
    sample = Path(web.__file__).parent / "sample.json"
    example = FOLDER / "txt2img.json"
    assert json.loads(sample.read_text()) == json.loads(example.read_text())


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_the_examples_can_be_planned(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "demo"
    (folder / "input").mkdir(parents=True)
    for picture in PICTURES:
        shutil.copy(picture, folder / "input")
    done = commands.run("plan", FOLDER / f"{name}.json", "--base-directory", folder)
    assert done.returncode == 0, done.stderr
