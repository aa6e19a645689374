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
            is_ours = about.st_uid == os.getuid() and about.st_mode & 0o170777 == 0o40700
            is_young = time.time() - about.st_mtime < _YOUNG_S
            if is_ours and not is_young and _is_deserted(folder / "coordinator"):
                shutil.rmtree(folder, ignore_errors=True)


def _is_deserted(address: Path) -> bool:
    """Whether the socket is there, with nobody behind it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_LIMIT_S)
        try:
            probe.connect(str(address))
        except ConnectionRefusedError:
            return True
    return False
