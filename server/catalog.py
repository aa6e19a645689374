"""The files that a workflow may name, from real folders: what validation and lowering ask.

Everything here touches disks, so it is called on threads, never on the event loop. Headers are read
once per state of a file; listings are made anew each time, as ComfyUI's are.
"""

from __future__ import annotations

import mimetypes
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar, cast

from ..graph_import.catalog import CheckpointInfo
from ..graph_import.errors import ModelFileProblem
from ..graph_import.handles import FileIdentity
from ..graph_import.nodes.user_model import CODE
from ..runtime.models.headers import (
    inspect_checkpoint,
    inspect_lora,
    inspect_part,
    inspect_upscaler,
)
from .files import FolderKind, Folders, UnsafeName, resolve_under, split_annotation
from .model_paths import ModelPaths
from .workflows.user_files import UserFiles

Found = TypeVar("Found", CheckpointInfo, FileIdentity)

MAX_LISTED_PICTURES: Final = 20_000
MAX_REMEMBERED_HEADERS: Final = 512


class FolderCatalog:
    """Implements `graph_import.catalog.Catalog`; `user_files` are the Python files that may run."""

    def __init__(
        self,
        model_paths: ModelPaths,
        folders: Folders,
        user_files: UserFiles = UserFiles(None, None),  # noqa: B008  (it has no state)
    ) -> None:
        self.user_files = user_files
        self._model_paths = model_paths
        self._folders = folders
        self._headers: OrderedDict[tuple[FileIdentity, object], object] = OrderedDict()
        self._lock = Lock()

    def choices(self, kind: str) -> tuple[str, ...]:
        """A combo's choices: pictures in `input`, or a kind's model files. Raises: KeyError."""
        if kind == FolderKind.INPUT:
            return _pictures(self._folders.input)
        return self._model_paths.names(kind)

    def checkpoint(self, name: str) -> CheckpointInfo:
        """What the checkpoint called `name` is.

        Raises: ModelFileProblem: missing, truncated, needs unpickling, of no known family.
        """
        return self._inspect(self._find("checkpoints", name), inspect_checkpoint)

    def part(self, kind: str, name: str) -> CheckpointInfo:
        """What the file of one model is. Raises: ModelFileProblem, as `checkpoint`."""
        look = inspect_upscaler if kind == "upscale_models" else inspect_part
        return self._inspect(self._find(kind, name), look)

    def file(self, kind: str, name: str) -> FileIdentity:
        """A LoRA, whose header is looked at, or a file that is looked at only where it is used.

        Raises: ModelFileProblem.
        """
        if kind == CODE:
            return self.user_files.identity(name)
        path = self._find(kind, name)
        return self._inspect(path, inspect_lora) if kind == "loras" else _identify(path)

    def picture(self, name: str) -> FileIdentity:
        """A picture by its name, which may say its folder: `a/b.png [output]`.

        Raises: ModelFileProblem: no such file, or the name leaves its folder.
        """
        bare, kind = split_annotation(name)
        try:
            path = resolve_under(self._folders.root(kind or FolderKind.INPUT), bare)
        except UnsafeName as problem:
            raise ModelFileProblem(f"picture {name!r}: {problem}", name=name) from problem
        if not path.is_file():
            raise ModelFileProblem(f"there is no picture called {name!r}", name=name)
        return _identify(path)

    def _find(self, kind: str, name: str) -> Path:
        try:
            path = self._model_paths.find(kind, name)
        except UnsafeName as problem:
            raise ModelFileProblem(f"{kind}: {name!r}: {problem}", name=name) from problem
        if path is None:
            raise ModelFileProblem(f"there is no file {name!r} in {kind}", name=name)
        return path

    def _inspect(self, path: Path, look: Callable[[Path], Found]) -> Found:
        """What `look` finds in the file as it is now; it looks once."""
        question = (_identify(path), look)
        with self._lock:
            known = self._headers.get(question)
            if known is not None:
                self._headers.move_to_end(question)
                return cast(Found, known)
        info = look(Path(question[0].path))
        with self._lock:
            self._headers[question] = info
            while len(self._headers) > MAX_REMEMBERED_HEADERS:
                self._headers.popitem(last=False)
        return info


def _identify(path: Path) -> FileIdentity:
    real = path.resolve()
    try:
        status = real.stat()
    except OSError as problem:
        raise ModelFileProblem(f"{path.name}: {problem.strerror}", name=path.name) from problem
    return FileIdentity(path=str(real), size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


def _pictures(folder: Path) -> tuple[str, ...]:
    """Names of the pictures directly in `folder`, sorted; hidden files are left out."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and _is_picture(entry.name) and entry.is_file():
                    found.append(entry.name)
                    if len(found) >= MAX_LISTED_PICTURES:
                        break
    except FileNotFoundError:
        return ()
    return tuple(sorted(found))


def _is_picture(name: str) -> bool:
    guessed = mimetypes.guess_type(name)[0]
    return guessed is not None and guessed.startswith("image/") and guessed != "image/svg+xml"


def embedding_names(model_paths: ModelPaths) -> Sequence[str]:
    """Names of textual-inversion embeddings without their suffixes."""
    return [os.path.splitext(name)[0] for name in model_paths.names("embeddings")]
