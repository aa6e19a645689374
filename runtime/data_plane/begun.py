"""Which batch an executor began last, in a file of eight bytes that outlives it.

Two executors may die at the same instant. A batch that the second one was sent, but had not begun,
did not kill it; nobody else can tell. Beside the checkpoints, in shared memory: a mark costs one
system call.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from ..ids import BatchId, ExecutorId

NONE_BEGUN: Final = BatchId(0)  # batches are counted from 1
_NUM_BYTES: Final = 8
_ORDER: Final = "little"


class BegunMark:
    """An executor's hand on its file. Raises: OSError: there can't be one."""

    def __init__(self, folder: Path, executor: ExecutorId, incarnation: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file = os.open(_path(folder, executor, incarnation), flags, 0o600)
        self.set(NONE_BEGUN)

    def set(self, batch_id: BatchId) -> None:
        """The batch begins. Raises: OSError: the file system is gone or full."""
        os.pwrite(self._file, batch_id.to_bytes(_NUM_BYTES, _ORDER), 0)


def take_begun(folder: Path, executor: ExecutorId, incarnation: str) -> BatchId | None:
    """What a dead executor began last, NONE_BEGUN if nothing; None: it left no word.

    The file is removed.
    """
    path = _path(folder, executor, incarnation)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    with contextlib.suppress(OSError):
        path.unlink()
    return BatchId(int.from_bytes(data, _ORDER)) if len(data) == _NUM_BYTES else None


def _path(folder: Path, executor: ExecutorId, incarnation: str) -> Path:
    return folder / f"{executor}.{incarnation}.begun"
