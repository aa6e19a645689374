"""Names and marks: no file without a noun, no notes to be done later, no room under a bare name."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest
from house.sources import OTHER_FOLDERS, ROOMS, ROOT, Source, assert_clean, files

NOT_A_NOUN = {"util", "utils", "common", "helper", "helpers", "misc", "manager", "managers"}
# Put together so that this file doesn't find itself.
MARKS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"]) + r")\b")
SUFFIXES = (".py", ".pyi", ".js", ".hpp", ".cpp", ".css", ".html", ".md", ".toml")
LATER = "TO" + "DO"


def shapeless_names(source: Source) -> Iterator[str]:
    words = set(re.split(r"[_.\-]", PurePosixPath(source.path).stem.lower()))
    parents = {part.lower() for part in PurePosixPath(source.path).parts[:-1]}
    if (words | parents) & NOT_A_NOUN:
        yield source.at(1, "the name says nothing: which noun lives here?")


def marks(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), start=1):
        if MARKS.search(line):
            yield source.at(number, "a note for later belongs in an issue")


def written() -> list[Source]:
    return list(files(*ROOMS, *OTHER_FOLDERS, "docs", suffixes=SUFFIXES))


def test_every_file_is_named_for_what_it_holds() -> None:
    assert_clean(shapeless_names, written())


def test_nothing_is_left_for_later() -> None:
    assert_clean(marks, written())


def test_the_checkers_find_bad_names_and_marks() -> None:
    for path in ("server/utils.py", "runtime/model_manager.py", "web/helpers/graph.js"):
        assert len(list(shapeless_names(Source(path, "")))) == 1
    assert list(shapeless_names(Source("runtime/executor/main.py", ""))) == []
    assert (
        len(list(marks(Source("server/x.py", f"x = 1  # {LATER}: later\nprefix_{LATER} = 1")))) == 1
    )


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_refuses_to_load_under_its_bare_name(room: str) -> None:
    command = [sys.executable, "-c", f"import {room}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    expected = f"ImportError: this package is nodeloom.{room}; it must not be imported as '{room}'"
    assert run.stderr.strip().splitlines()[-1] == expected


def test_every_room_is_in_the_package_table() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    table = settings["tool"]["scikit-build"]["wheel"]["packages"]
    assert table == {f"nodeloom/{room}": room for room in ROOMS}
    on_disk = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert on_disk == set(ROOMS)
