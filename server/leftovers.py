"""One server per state folder, and what killed servers left behind.

Two servers on one database would both run its unfinished requests. The lock is the kernel's: it
goes with the process, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..runtime.config import CHECKPOINTS_PREFIX, SHARED_MEMORY
from ..runtime.errors import SettingsProblem

_LOCK_NAME: Final = "server.lock"
# A folder may be this young without its socket being ready for connections.
_YOUNG_S: Final = 60.0
_CONNECT_LIMIT_S: Final = 1.0


@contextlib.contextmanager
def only_server(state_directory: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises: SettingsProblem: another server has it, or no access."""
    path = state_directory / _LOCK_NAME
    try:
        lock = path.open("a+", encoding="utf-8")
    except OSError as problem:
        raise SettingsProblem(f"file {path}: {problem.strerror}") from problem
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            lock.seek(0)
            raise SettingsProblem(
                f"another server uses {state_directory} (process {lock.read(20).strip() or '?'}): "
                "stop it, or give this one its own --base-directory or --user-directory"
            ) from problem
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def sweep_links(parent: Path) -> None:
    """Remove the socket folders of servers that were killed.

    One is stale if it is ours, is not young, and nobody listens on its coordinator socket.
    """
    for folder in parent.glob("nodeloom-*"):
        with contextlib.suppress(OSError):
            about = folder.lstat()
            is_young = time.time() - about.st_mtime < _YOUNG_S
            if _is_ours(about) and not is_young and _is_deserted(folder / "coordinator"):
                shutil.rmtree(folder, ignore_errors=True)


def sweep_checkpoints(parent: Path = SHARED_MEMORY) -> None:
    """Remove the checkpoints of killed servers: folders of ours that nobody has locked."""
    for folder in parent.glob(CHECKPOINTS_PREFIX + "*"):
        with contextlib.suppress(OSError), _opened(folder) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A folder of ours that is nobody else's business. Raises: OSError: it is something else."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not _is_ours(os.fstat(opened)):
            raise PermissionError(f"{folder} belongs to somebody else")
        yield opened
    finally:
        os.close(opened)


def _is_ours(about: os.stat_result) -> bool:
    """Whether it is a folder that only we may open."""
    return about.st_uid == os.getuid() and about.st_mode & 0o170777 == 0o40700


def _is_deserted(address: Path) -> bool:
    """Whether the socket is there, with nobody behind it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_LIMIT_S)
        try:
            probe.connect(str(address))
        except ConnectionRefusedError:
            return True
    return False
