"""Names of saved pictures: `PREFIX_00001_.png`, in a folder below the root that saving may use.

Source: spec comfyui-api/api.md, section 9, "Names written by save nodes".
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from ..errors import NodeFailed

BATCH_NUM: Final = "%batch_num%"
MAX_NAME_BYTES: Final = 255
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(slots=True, frozen=True)
class NamePattern:
    """Where the pictures of one save go: a folder below the root, and the stem of their names.

    `stem` may hold `%batch_num%`, the picture's place in its batch; `suffix` says the format.
    """

    subfolder: str
    stem: str
    suffix: str = ".png"

    def name(self, index: int, number: int) -> str:
        """The file name of picture `index` under a counter. Raises: NodeFailed: too long."""
        stem = self.stem.replace(BATCH_NUM, str(index))
        name = f"{stem}_{number:05}_{self.suffix}"
        if len(os.fsencode(name)) > MAX_NAME_BYTES:
            raise NodeFailed(f"the file name {name[:40]!r}... is too long", input="filename_prefix")
        return name

    def next_number(self, folder: Path) -> int:
        """One more than the highest counter of these names in `folder`."""
        stem = r"\d+".join(re.escape(part) for part in self.stem.split(BATCH_NUM))
        matches = map(re.compile(rf"{stem}_(\d{{1,9}})_").match, os.listdir(folder))
        return max((int(match[1]) for match in matches if match), default=0) + 1


def parse_prefix(
    prefix: str, width: int, height: int, now: datetime, suffix: str = ".png"
) -> NamePattern:
    """Replace the variables of a `filename_prefix` and split off its folder.

    Raises: NodeFailed: it holds control characters or leaves the root.
    """
    variables = {"width": str(width), "height": str(height), "year": f"{now.year:04}"}
    for name in ("month", "day", "hour", "minute", "second"):
        variables[name] = f"{getattr(now, name):02}"
    for name, value in variables.items():
        prefix = prefix.replace(f"%{name}%", value)
    if _CONTROL.search(prefix):
        raise NodeFailed("filename_prefix has control characters", input="filename_prefix")
    path = os.path.normpath(prefix)
    if os.path.isabs(path) or path == ".." or path.startswith("../"):
        raise _leaves(prefix)
    subfolder, stem = os.path.split("" if path == "." else path)
    return NamePattern(subfolder=subfolder, stem=stem, suffix=suffix)


def make_folder(root: Path, subfolder: str) -> Path:
    """The folder for a save, made where it is missing; links may not lead out of the root.

    Raises: NodeFailed: it lies outside, or can't be made.
    """
    root = root.resolve()
    try:
        for _ in range(2):  # before anything is made, and after
            folder = (root / subfolder).resolve()
            if not folder.is_relative_to(root):
                raise _leaves(subfolder)
            folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise NodeFailed(f"the folder {subfolder!r} can't be made: {error}") from error
    return folder


def _leaves(prefix: str) -> NodeFailed:
    return NodeFailed(
        f"filename_prefix {prefix!r} leaves the folder for saved files", input="filename_prefix"
    )
