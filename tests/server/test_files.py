"""No name leaves its folder, whatever it is made of; temp is emptied with care."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nodeloom.runtime.config import Settings
from nodeloom.runtime.errors import SettingsProblem
from nodeloom.server.files import (
    FolderKind,
    UnsafeName,
    empty_temp,
    make_folders,
    resolve_under,
    split_annotation,
)

PIECES = st.sampled_from(
    [
        "..",
        ".",
        "a",
        "deep",
        "link",
        "out",
        "/",
        "//",
        "\\",
        "\0",
        "\n",
        "~",
        "%2e%2e",
        "é",
        "\ud800",
    ]
)
NAMES = st.lists(PIECES | st.text(max_size=5), max_size=8).map("/".join) | st.text(max_size=40)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a link to itself, one to a secret beside it and one out of reach."""
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "a").write_text("inside")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a").write_text("outside")
    os.symlink(root / "deep", root / "link")
    os.symlink(tmp_path / "secret", root / "out")
    return root


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(folder=NAMES, name=NAMES)
def test_a_resolved_name_lies_in_its_folder(root: Path, folder: str, name: str) -> None:
    try:
        path = resolve_under(root, folder, name)
    except UnsafeName:
        return
    assert path.is_relative_to(root.resolve())
    assert path.resolve() == path


@pytest.mark.parametrize(
    "name",
    ["../secret/a", "out/a", "out", "deep/../../secret", "/etc/passwd", "a\0b", "a\nb", "x" * 2000],
)
def test_names_that_leave_or_cannot_be_are_refused(root: Path, name: str) -> None:
    with pytest.raises(UnsafeName):
        resolve_under(root, name)


@pytest.mark.parametrize("name", ["", "deep/a", "link/a", "deep/../deep/a", "new/b.png", "a\\b"])
def test_names_inside_are_resolved(root: Path, name: str) -> None:
    assert resolve_under(root, name).is_relative_to(root.resolve())


def test_a_root_may_itself_be_a_link(root: Path, tmp_path: Path) -> None:
    os.symlink(root, tmp_path / "alias")
    assert resolve_under(tmp_path / "alias", "deep", "a").read_text() == "inside"


@pytest.mark.parametrize(
    ("name", "bare", "kind"),
    [
        ("x.png [input]", "x.png", FolderKind.INPUT),
        ("a/x.png [output]", "a/x.png", FolderKind.OUTPUT),
        ("x.png [temp]", "x.png", FolderKind.TEMP),
        ("x.png[input]", "x.pn", FolderKind.INPUT),
        ("[input]", "", FolderKind.INPUT),
        ("x.png", "x.png", None),
        ("x.png [other]", "x.png [other]", None),
    ],
)
def test_an_annotation_goes_with_one_character_before_it(
    name: str, bare: str, kind: FolderKind | None
) -> None:
    assert split_annotation(name) == (bare, kind)


def test_folders_are_made_and_our_own_is_private(server_settings: Settings) -> None:
    make_folders(server_settings)
    empty_temp(server_settings)
    assert server_settings.input_directory.is_dir()
    assert server_settings.output_directory.is_dir()
    assert server_settings.state_directory.stat().st_mode & 0o777 == 0o700


def test_temp_is_emptied_and_links_in_it_are_cut_not_followed(
    server_settings: Settings, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "picture.png").touch()
    temp = server_settings.temp_directory
    (temp / "sub").mkdir(parents=True)
    (temp / "sub" / "old.png").touch()
    os.symlink(kept, temp / "link")
    empty_temp(server_settings)
    assert [entry.name for entry in temp.iterdir()] == [".nodeloom-temp"]
    assert (kept / "picture.png").exists()


def test_a_full_folder_of_another_name_is_not_emptied(
    server_settings: Settings, tmp_path: Path
) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "holiday.png").touch()
    wrong = replaced(server_settings, temp_directory=pictures)
    with pytest.raises(SettingsProblem, match="emptied"):
        empty_temp(wrong)
    assert (pictures / "holiday.png").exists()


def test_a_temp_folder_that_holds_other_folders_is_refused(server_settings: Settings) -> None:
    wrong = replaced(server_settings, temp_directory=server_settings.base_directory)
    with pytest.raises(SettingsProblem, match="holds others"):
        empty_temp(wrong)


def replaced(server_settings: Settings, **changes: Path) -> Settings:
    return Settings(
        **{name: getattr(server_settings, name) for name in server_settings.__struct_fields__}
        | changes
    )
