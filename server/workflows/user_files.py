"""The Python files that the server's owner lets run, and copies of those that requests run.

Nothing else is ever run: a file is named by its path below one folder, links followed, which no
client can write to. An accepted request, and a version of a workflow, go on with the text that they
were made with: executors find it among the copies by the file's path and the text's hash, as long
as the file is there at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
from pathlib import Path
from typing import Final

import msgspec

from ...graph_import.dsl.user_code import kept_name
from ...graph_import.errors import ModelFileProblem, NodeloomError
from ...graph_import.handles import FileIdentity
from ...runtime.config import Settings
from ...runtime.errors import SettingsProblem
from ..files import UnsafeName, resolve_under

MAX_FILE_BYTES: Final = 1 << 20
MAX_COPIES: Final = 2_000  # the least recently used ones go
SUFFIX: Final = ".py"
PART: Final = "."  # how the names of copies begin that are being written
NO_WORKFLOWS: Final = (
    "this server runs no workflows in Python: its owner must start it with "
    "--workflow-directory DIR, the folder of the files that may run"
)
NO_MODELS: Final = (
    "this server runs no models of users' own: its owner must start it with "
    "--allow-user-models and --workflow-directory DIR, the folder of their files"
)


class UserCodeRefused(NodeloomError):
    """The server was not told to run Python of this kind; the message names the flag (403)."""

    code = "user_code_refused"


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was read: its name below the folder, its bytes and their hash."""

    name: str
    data: bytes
    sha256: str


class UserFiles:
    """The folder of one server.

    Args:
        folder: what may run; None: nothing.
        copies: where copies for executors lie; None: no models of users' own run.
    """

    def __init__(self, folder: Path | None, copies: Path | None) -> None:
        self._folder = folder
        self._copies = copies
        self._lock = threading.Lock()  # one thread at a time writes and deletes copies

    @classmethod
    def of(cls, settings: Settings) -> UserFiles:
        """What the settings allow.

        Raises: SettingsProblem: there is no such folder, or clients could write into it.
        """
        folder = settings.workflow_directory
        if folder is None:
            return cls(None, None)
        if not folder.is_dir():
            raise SettingsProblem(f"workflow_directory {folder} is no folder")
        real = folder.resolve()
        for kind in ("input", "output", "temp", "user"):
            other: Path = getattr(settings, f"{kind}_directory").resolve()
            if other.is_relative_to(real) or real.is_relative_to(other):
                raise SettingsProblem(
                    f"workflow_directory {folder} and {kind}_directory {other} overlap: what "
                    "clients send must not become a file that may run"
                )
        return cls(folder, settings.user_models_directory if settings.allow_user_models else None)

    @property
    def allows_models(self) -> bool:
        """Whether models of users' own run here."""
        return self._folder is not None and self._copies is not None

    def check_models_allowed(self) -> None:
        """Raises: UserCodeRefused: no models of users' own run here."""
        if not self.allows_models:
            raise UserCodeRefused(NO_MODELS)

    def read(self, name: str) -> SourceFile:
        """The file called `name`.

        Raises: UserCodeRefused: no Python runs here. UnsafeName: the name leaves the folder.
        ModelFileProblem: there is no such file, it is no Python, or too large.
        """
        if self._folder is None:
            raise UserCodeRefused(NO_WORKFLOWS)
        path = self._find(self._folder, name)
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as problem:
            raise ModelFileProblem(f"{name}: {problem.strerror}", name=name) from problem
        if len(data) > MAX_FILE_BYTES:
            raise ModelFileProblem(f"{name}: larger than {MAX_FILE_BYTES >> 20} MB", name=name)
        return SourceFile(name=name, data=data, sha256=hashlib.sha256(data).hexdigest())

    def identity(self, name: str) -> FileIdentity:
        """The file of a model of a user's own, as it is named: links in its path stay.

        Raises: ModelFileProblem, also for a bad name.
        """
        if self._folder is None or self._copies is None:
            raise ModelFileProblem(NO_MODELS, name=name)
        try:
            status = self._find(self._folder, name).stat()
        except UnsafeName as problem:
            raise ModelFileProblem(f"user_models: {problem.message}", name=name) from problem
        except OSError as problem:
            raise ModelFileProblem(f"{name}: {problem.strerror}", name=name) from problem
        path = str(self._folder.absolute() / name)
        return FileIdentity(path=path, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)

    def keep(self, name: str, sha256: str) -> None:
        """See to it that executors find the file with this content.

        Raises: ModelFileProblem: models don't run here, there is no such file, it has another
        content by now and no copy is left, or the copy can't be written.
        """
        path = self.identity(name).path
        if self._copies is None:
            return
        kept = kept_name(path, sha256)
        try:
            with self._lock:
                if kept is not None and _is_intact(self._copies / kept, sha256):
                    return
                source = self.read(name)
                if kept is None or source.sha256 != sha256:
                    raise ModelFileProblem(
                        f"{name} is another file here (sha256 {source.sha256[:12]}..., not "
                        f"{sha256[:12]!r}...): copy yours to the server's --workflow-directory",
                        name=name,
                    )
                self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write(self._copies / kept, source.data)
                _sweep(self._copies)
        except OSError as problem:
            message = f"{name}: no copy of it can be kept: {problem.strerror}"
            raise ModelFileProblem(message, name=name) from problem

    @staticmethod
    def _find(folder: Path, name: str) -> Path:
        """Raises: UnsafeName, ModelFileProblem."""
        if not name.endswith(SUFFIX):
            raise ModelFileProblem(f"{name!r} is no Python file ({SUFFIX})", name=name)
        path = resolve_under(folder, name)
        if not path.is_file():
            raise ModelFileProblem(f"there is no file {name!r} in the folder of workflows")
        return path


def _is_intact(copy: Path, sha256: str) -> bool:
    """Whether the copy is there and whole; then it is the latest used."""
    try:
        with copy.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if hashlib.sha256(data).hexdigest() != sha256:
            return False
        os.utime(copy)
    except FileNotFoundError:  # never made, or swept away by another server meanwhile
        return False
    return True


def _write(copy: Path, data: bytes) -> None:
    """All of it or nothing, whatever crashes. Raises: OSError."""
    with tempfile.NamedTemporaryFile(dir=copy.parent, prefix=PART, delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, copy)
        except OSError:
            os.unlink(file.name)
            raise


def _sweep(copies: Path) -> None:
    """Delete the least recently used copies beyond MAX_COPIES. Raises: OSError."""
    used: list[tuple[int, Path]] = []
    for file in copies.iterdir():
        if not file.name.startswith(PART):
            with contextlib.suppress(FileNotFoundError):
                used.append((file.stat().st_mtime_ns, file))
    for _, file in sorted(used)[:-MAX_COPIES]:
        file.unlink(missing_ok=True)
