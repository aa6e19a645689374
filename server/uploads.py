"""Where uploaded bytes go: a hidden file first, then a name that nothing else has.

Source: spec comfyui-api/api.md, section 9, POST /upload/image.
"""

from __future__ import annotations

import errno
import filecmp
import os
import secrets
import shutil
from pathlib import Path
from typing import Final

from .files import UnsafeName, resolve_under

MAX_TWINS: Final = 10_000
_PREFIX: Final = ".nodeloom-upload-"
# A full disk or a folder without permission is no fault of the name.
_NAME_FAULTS: Final = frozenset(
    (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
)


def staging_file(folder: Path) -> Path:
    """A new hidden name in `folder`; listings skip hidden files."""
    return folder / f"{_PREFIX}{secrets.token_hex(8)}"


def keep(staged: Path, root: Path, subfolder: str, name: str, *, overwrite: bool) -> str:
    """Move `staged` to its place below `root` and return the name that it got.

    A name that is taken by other bytes becomes `stem (1).ext` and so on; one that is taken by the
    same bytes is returned as it is. `subfolder` is made on demand, folders in `name` are not.
    Raises: UnsafeName.
    """
    folder = resolve_under(root, subfolder)
    target = resolve_under(folder, name)
    if not target.is_relative_to(root.resolve()) or target == folder:
        raise UnsafeName("a name may not leave its folder", name=name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not target.parent.is_dir():
            raise UnsafeName("the name's folder does not exist", name=name)
        if overwrite:
            _replace(staged, target)
            return name
        return _keep_beside(staged, target, name)
    except OSError as problem:
        if problem.errno not in _NAME_FAULTS:
            raise
        raise UnsafeName(f"not a usable name: {problem.strerror}", name=name) from problem


def _keep_beside(staged: Path, target: Path, name: str) -> str:
    stem, suffix = os.path.splitext(name)
    for number in range(MAX_TWINS):
        candidate = name if number == 0 else f"{stem} ({number}){suffix}"
        place = target if number == 0 else target.with_name(os.path.basename(candidate))
        if _claim(staged, place) or filecmp.cmp(staged, place, shallow=False):
            return candidate
    raise UnsafeName("too many files have this name", name=name)


def _claim(staged: Path, place: Path) -> bool:
    """Give the bytes the name `place`; False if it is taken. A reader never sees half a file."""
    try:
        os.link(staged, place)
    except FileExistsError:
        return False
    except OSError:  # another file system, or one without hard links
        if place.exists():
            return False
        beside = staging_file(place.parent)
        shutil.copyfile(staged, beside)
        os.rename(beside, place)
    return True


def _replace(staged: Path, target: Path) -> None:
    beside = staging_file(target.parent)
    shutil.copyfile(staged, beside)
    os.replace(beside, target)


def sweep(folder: Path) -> None:
    """Remove what uploads left in `folder` when a server was killed."""
    for left in folder.glob(f"{_PREFIX}*"):
        left.unlink(missing_ok=True)
