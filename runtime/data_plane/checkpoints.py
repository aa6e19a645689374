"""Files that hold tensors' bytes and outlive the executor that wrote them.

One folder for each run of the server, in shared memory where there is enough of it. A file has the
bytes of one tensor as a ref describes them, C order, nothing else; shape and dtype stand in the
ref. It is written completely before anybody hears of it. Nothing here needs torch: the coordinator
deletes the files of dead executors.

Files are never the only copy of anything that can't be made again, so whatever goes wrong with one
is no error of a call: it is written without, or fetched from its producer, or runs again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from ..ids import ExecutorId
from ..protocol import TensorKey

log = logging.getLogger(__name__)

# Executor, incarnation, tensor id. No part has a dot, so a name belongs to one incarnation only.
NAME: Final = re.compile(r"[\w-]{1,64}\.[\w-]{1,64}\.[0-9]{1,20}", re.ASCII)
# What an executor may have in files at once. They are small: a latent of 1024 x 1024 pixels has
# 64 KB, and a step's files go when the next step is done.
MAX_OWN_BYTES: Final = 2**30
# What stays free in the file system: a quarter of it, but not more than this.
MAX_SPARE_BYTES: Final = 2**30


def file_name(key: TensorKey) -> str:
    """What a tensor's file is called. Raises: ValueError: no file can have that name."""
    return _checked(f"{key.executor}.{key.incarnation}.{key.tensor_id}")


class CheckpointFolder:
    """The folder, by names; no name leads out of it. Raises: OSError: there is no such folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

    def close(self) -> None:
        """No more files are read or written."""
        os.close(self._folder)

    def left_bytes(self) -> int:
        """How much may be written before the file system would be too full for others."""
        about = os.fstatvfs(self._folder)
        spare_bytes = min(about.f_blocks * about.f_frsize // 4, MAX_SPARE_BYTES)
        return about.f_bavail * about.f_frsize - spare_bytes

    def write(self, name: str, data: memoryview) -> None:
        """Write a new file; one that can't be completed is removed. Raises: OSError, ValueError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        file = os.open(_checked(name), flags, 0o600, dir_fd=self._folder)
        try:
            while data:
                data = data[os.write(file, data) :]
        except OSError:
            os.unlink(name, dir_fd=self._folder)
            raise
        finally:
            os.close(file)

    @contextlib.contextmanager
    def opened(self, name: str, num_bytes: int) -> Iterator[int]:
        """A file of just that size, for `fill`.

        Raises: OSError, ValueError: it is not there, or is something else.
        """
        # NONBLOCK: a pipe of that name must not hold us up before it is looked at.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(_checked(name), flags, dir_fd=self._folder)
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode) or about.st_size != num_bytes:
                raise ValueError(f"{about.st_size} bytes for a tensor of {num_bytes}")
            yield file
        finally:
            os.close(file)

    def remove(self, names: Iterable[str]) -> None:
        """Delete files; those that are not there are no error. Whoever has one open reads on."""
        for name in names:
            with contextlib.suppress(FileNotFoundError, ValueError):
                os.unlink(_checked(name), dir_fd=self._folder)

    def sweep(self, executor: ExecutorId, incarnation: str, kept: Collection[str]) -> None:
        """Delete what a dead incarnation left, but for the files in `kept`."""
        start = f"{executor}.{incarnation}."
        names = [name for name in os.listdir(self._folder) if name.startswith(start)]
        self.remove(set(names).difference(kept))


class OwnCheckpoints:
    """An executor's hand in the folder: it writes its tensors' files, and deletes them itself.

    Its main thread writes while its I/O thread deletes.
    """

    def __init__(self, folder: CheckpointFolder) -> None:
        self.folder = folder
        self._sizes: dict[TensorKey, int] = {}
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._is_complaint_made = False

    def save(self, key: TensorKey, data: memoryview) -> str | None:
        """Write a tensor's file; returns its name, or None if that can't or should not be done."""
        try:
            name = file_name(key)
            if data.nbytes > min(MAX_OWN_BYTES - self._num_bytes, self.folder.left_bytes()):
                raise ValueError("there is too little room left")
            self.folder.write(name, data)
        except (OSError, ValueError) as problem:
            self._complain(str(problem))
            return None
        with self._lock:
            self._sizes[key] = data.nbytes
            self._num_bytes += data.nbytes
        return name

    def drop(self, keys: Iterable[TensorKey]) -> None:
        """Delete the files of those of our tensors that have one."""
        with self._lock:
            ours = [key for key in dict.fromkeys(keys) if key in self._sizes]
            self._num_bytes -= sum(self._sizes.pop(key) for key in ours)
        try:
            self.folder.remove(map(file_name, ours))
        except OSError as problem:
            self._complain(str(problem))

    def _complain(self, reason: str) -> None:
        """Say it once: what can't be written now can't be written in the next step either."""
        if not self._is_complaint_made:
            self._is_complaint_made = True
            folder = str(self.folder.path)
            log.warning("not_checkpointed", extra={"folder": folder, "reason": reason})


def own_checkpoints(path: Path | None) -> OwnCheckpoints | None:
    """An executor's hand in the folder that it was told; without one nothing outlives it."""
    if path is None:
        return None
    try:
        return OwnCheckpoints(CheckpointFolder(path))
    except OSError as problem:
        log.warning("not_checkpointed", extra={"folder": str(path), "reason": str(problem)})
        return None


def _checked(name: str) -> str:
    if NAME.fullmatch(name) is None:
        raise ValueError(f"not the name of a checkpoint: {name!r}")
    return name


def fill(into: memoryview, file: int) -> None:
    """Read all of `into`. Raises: OSError, ValueError: the file ends before that."""
    while into:
        num_read = os.readv(file, [into])
        if not num_read:
            raise ValueError("it is cut off")
        into = into[num_read:]
