"""The four folders of pictures and state, and names that stay inside them.

A name from a client is resolved below one of these roots, symbolic links followed, before a file
is touched. What a root itself is, the operator decides: it may be a link to another disk.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ..graph_import.errors import NodeloomError
from ..runtime.config import Settings
from ..runtime.errors import SettingsProblem

MAX_NAME_CHARACTERS: Final = 1024
_TEMP_MARKER: Final = ".nodeloom-temp"


class UnsafeName(NodeloomError):
    """A name that leaves its folder, or that no file can have."""

    code = "unsafe_name"


class FolderKind(StrEnum):
    """The folders that clients may name, in ComfyUI's words."""

    INPUT = "input"
    OUTPUT = "output"
    TEMP = "temp"


@dataclass(frozen=True, slots=True)
class Folders:
    """Where pictures are read from and written to."""

    input: Path
    output: Path
    temp: Path

    @classmethod
    def of(cls, settings: Settings) -> Folders:
        """The folders that the settings name."""
        return cls(
            input=settings.input_directory,
            output=settings.output_directory,
            temp=settings.temp_directory,
        )

    def root(self, kind: FolderKind) -> Path:
        """The folder of that kind."""
        match kind:
            case FolderKind.INPUT:
                return self.input
            case FolderKind.OUTPUT:
                return self.output
            case FolderKind.TEMP:
                return self.temp


def check_name(name: str) -> None:
    """Refuse what no folder may hold. Raises: UnsafeName."""
    if len(name) > MAX_NAME_CHARACTERS:
        raise UnsafeName(f"a name may have {MAX_NAME_CHARACTERS} characters at most")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in name):
        raise UnsafeName("a name may not have control characters", name=name)
    if any(0xD800 <= ord(character) <= 0xDFFF for character in name):
        raise UnsafeName("a name must be valid Unicode")


def resolve_under(root: Path, *parts: str) -> Path:
    """The real path of `parts` below `root`, links followed; it need not exist.

    Raises: UnsafeName: the path is absolute, leaves `root`, or can't be a file name.
    """
    for part in parts:
        check_name(part)
        if part.startswith("/"):
            raise UnsafeName("a name may not be absolute", name=part)
    try:
        real_root = root.resolve()
        path = real_root.joinpath(*parts).resolve()
    except (OSError, RuntimeError, ValueError) as problem:
        raise UnsafeName(f"not a usable name: {problem}", name="/".join(parts)) from problem
    if not path.is_relative_to(real_root):
        raise UnsafeName("a name may not leave its folder", name="/".join(parts))
    return path


def split_annotation(name: str) -> tuple[str, FolderKind | None]:
    """`x.png [input]` -> (`x.png`, INPUT); a name without annotation -> (name, None).

    The annotation goes together with exactly one character before it, as in ComfyUI.
    Source: spec comfyui-api/api.md, section 9, GET /view.
    """
    for kind in FolderKind:
        annotation = f"[{kind}]"
        if name.endswith(annotation):
            return name[: -len(annotation) - 1], kind
    return name, None


def make_folders(settings: Settings) -> None:
    """Create the folders of a server but `temp`. Raises: SettingsProblem."""
    try:
        for folder in (settings.input_directory, settings.output_directory):
            folder.mkdir(parents=True, exist_ok=True)
        (settings.models_directory / "checkpoints").mkdir(parents=True, exist_ok=True)
        settings.user_directory.mkdir(parents=True, exist_ok=True)
        settings.state_directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as problem:
        raise SettingsProblem(f"folder {problem.filename}: {problem.strerror}") from problem


def empty_temp(settings: Settings) -> None:
    """Create or empty the temp folder.

    Only a folder that is called `temp` or that we made is emptied, and none that holds another
    folder of ours: a slip in a flag must not cost anybody's pictures. Raises: SettingsProblem.
    """
    temp = settings.temp_directory
    real = temp.resolve()
    others = (
        settings.base_directory,
        settings.input_directory,
        settings.output_directory,
        settings.user_directory,
        Path.home(),
    )
    if any(other.resolve().is_relative_to(real) for other in others):
        raise SettingsProblem(f"temp_directory {temp} is emptied at start, yet it holds others")
    try:
        _empty(temp)
    except OSError as problem:
        raise SettingsProblem(f"folder {problem.filename}: {problem.strerror}") from problem


def _empty(temp: Path) -> None:
    is_new = not temp.exists()
    temp.mkdir(parents=True, exist_ok=True)
    entries = sorted(temp.iterdir())
    if not (is_new or not entries or temp.name == "temp" or (temp / _TEMP_MARKER).exists()):
        raise SettingsProblem(
            f"temp_directory {temp} is emptied at start: name an empty folder or one called temp"
        )
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    (temp / _TEMP_MARKER).touch()
