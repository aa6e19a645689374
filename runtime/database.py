"""One SQLite file and the thread that owns it: the event loop never waits for a disk.

What is committed is on the disk (write-ahead log, `synchronous=FULL`). Files that another version
of their schema has written are refused.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Database:
    """Open it with `open`, end with `close`.

    Args:
        name: of its thread.
        schema: statements that may be run on a file that has it already.
        version: of the schema.
    """

    def __init__(self, path: Path, *, name: str, schema: str, version: int) -> None:
        self._path = path
        self._schema = schema
        self._version = version
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Create or open the file. Raises: sqlite3.DatabaseError: it is no database of ours."""
        await self.run(self._open)

    async def close(self) -> None:
        """Finish what is queued and close the file."""
        if self._connection is not None:
            await self.run(self._connection.close)
            self._connection = None
        self._thread.shutdown()

    async def run(self, work: Callable[[], T]) -> T:
        """Have the thread do it, after what it was asked before."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @property
    def connection(self) -> sqlite3.Connection:
        """For the thread alone. Raises: RuntimeError: the database is not open."""
        if self._connection is None:
            raise RuntimeError("the store is not open")
        return self._connection

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, check_same_thread=False, timeout=10.0)
        self._path.chmod(0o600)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            written_by = connection.execute("PRAGMA user_version").fetchone()[0]
            if written_by not in (0, self._version):
                raise sqlite3.DatabaseError(
                    f"{self._path}: written by another version ({written_by})"
                )
            with connection:
                connection.executescript(self._schema)
                connection.execute(f"PRAGMA user_version={self._version}")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection
