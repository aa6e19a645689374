"""Names of saved pictures: ComfyUI's, and never outside their folder."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.ops.save_names import NamePattern, make_folder, parse_prefix

NOON = datetime(2026, 3, 4, 12, 5, 9)


def parse(prefix: str) -> tuple[str, str]:
    pattern = parse_prefix(prefix, 640, 480, NOON)
    return pattern.subfolder, pattern.stem


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("ComfyUI", ("", "ComfyUI")),
        ("a/b/c", ("a/b", "c")),
        ("a/../b", ("", "b")),
        ("./a//b", ("a", "b")),
        ("a/", ("", "a")),
        ("", ("", "")),
        ("%width%x%height%", ("", "640x480")),
        ("%year%-%month%-%day%/%hour%%minute%%second%", ("2026-03-04", "120509")),
        ("x%batch_num%", ("", "x%batch_num%")),
        ("%date:yyyy%", ("", "%date:yyyy%")),
        ("..x", ("", "..x")),
    ],
)
def test_a_prefix_becomes_folder_and_stem(prefix: str, expected: tuple[str, str]) -> None:
    assert parse(prefix) == expected


@pytest.mark.parametrize("prefix", ["..", "../x", "a/../../x", "/etc/x", "//x", "a\0b", "a\nb"])
def test_a_prefix_that_leaves_the_folder_is_refused(prefix: str) -> None:
    with pytest.raises(NodeFailed, match="filename_prefix"):
        parse(prefix)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prefix=st.text(st.sampled_from("ab./%\\~ \0"), max_size=12))
def test_no_prefix_leads_out(tmp_path: Path, prefix: str) -> None:
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    try:
        pattern = parse_prefix(prefix, 1, 1, NOON)
        path = make_folder(root, pattern.subfolder) / pattern.name(0, 1)
    except NodeFailed:
        return
    path.touch()
    assert path.resolve().is_relative_to(root.resolve())
    assert {entry.name for entry in tmp_path.iterdir()} == {"root"}


def test_a_link_does_not_lead_out(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    os.symlink(outside, root / "link")
    os.symlink("link", root / "chain")
    for subfolder in ("link", "link/deeper", "chain/deeper"):
        with pytest.raises(NodeFailed, match="leaves the folder"):
            make_folder(root, subfolder)
    assert list(outside.iterdir()) == []


def test_a_file_in_the_way_is_an_error_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(NodeFailed, match="can't be made"):
        make_folder(tmp_path, "taken/deeper")


def test_a_name_that_no_file_system_holds_is_refused() -> None:
    assert len(NamePattern(subfolder="", stem="x" * 244).name(0, 1)) == 255
    with pytest.raises(NodeFailed, match="too long"):
        NamePattern(subfolder="", stem="é" * 123).name(0, 1)


@pytest.mark.parametrize(
    ("stem", "present", "expected"),
    [
        ("x", [], 1),
        ("x", ["x_00001_.png", "x_00007_.png", "x_00003_.png"], 8),
        ("x", ["x_00009_.webp", "x_00012_a.png"], 13),
        ("x", ["xx_00005_.png", "x_1.png", "x_a_.png", "X_00005_.png"], 1),
        ("x", ["x_99999999999999999999_.png"], 1),
        ("x.y+(z)", ["x.y+(z)_00002_.png", "xay+(z)_00005_.png"], 3),
        ("a%batch_num%b", ["a0b_00001_.png", "a1b_00002_.png", "axb_00009_.png"], 3),
    ],
)
def test_counters_go_on_from_the_highest(
    tmp_path: Path, stem: str, present: list[str], expected: int
) -> None:
    for name in present:
        (tmp_path / name).touch()
    assert NamePattern(subfolder="", stem=stem).next_number(tmp_path) == expected
