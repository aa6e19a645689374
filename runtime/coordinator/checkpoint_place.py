"""Where one run of the server keeps checkpoints: a folder of its own, in shared memory if possible.

The folder in shared memory is locked as long as we live, so that the next server can tell what a
killed one left (`server/leftovers.py`). The lock is the kernel's and goes with the process.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from ..config import CHECKPOINTS_PREFIX, SHARED_MEMORY
from ..data_plane.checkpoints import CheckpointFolder

log = logging.getLogger(__name__)

# Containers often have 64 MB of shared memory; with less than this it is meant for nobody's data.
MIN_FREE_BYTES: Final = 32 * 1024 * 1024


class CheckpointPlace:
    """The folder, 0700; `close` removes it with all that is in it.

    Args:
        run_folder: a folder of this run, which is used where there is no shared memory.
    """

    def __init__(self, run_folder: Path, shared_memory: Path = SHARED_MEMORY) -> None:
        self._lock: int | None = None
        try:
            self.path = self._make_locked(shared_memory)
        except OSError as problem:
            self.path = run_folder / "checkpoints"
            self.path.mkdir(mode=0o700)
            log.info("checkpoints_on_disk", extra={"reason": str(problem)})
        self.folder = CheckpointFolder(self.path)

    def close(self) -> None:
        """Remove the folder."""
        self.folder.close()
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)

    def _make_locked(self, parent: Path) -> Path:
        """A folder that is locked before it has the name by which others look for it."""
        about = os.statvfs(parent)
        if about.f_bavail * about.f_frsize < MIN_FREE_BYTES:
            raise OSError(f"{parent} is too full")
        hidden = Path(tempfile.mkdtemp(prefix=".nodeloom-", dir=parent))  # mkdtemp makes it 0700
        path = parent / (CHECKPOINTS_PREFIX + hidden.name.removeprefix(".nodeloom-"))
        lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden.rename(path)
        except OSError:
            os.close(lock)
            hidden.rmdir()
            raise
        self._lock = lock
        return path
