"""The registered workflows, in SQLite (WAL): every version, and which one is current.

A database of its own beside the coordinator's, on a thread of its own. A number is never used
again, not even after the workflow was deleted.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from ...runtime.database import Database
from .records import RegistrationConflict, Source, UnknownWorkflow, Version, content_hash

MAX_WORKFLOWS: Final = 1_000
MAX_BYTES: Final = 256 << 20  # of all versions together
MAX_DELETED: Final = 10_000  # names whose last number is remembered
SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS workflows (
    name TEXT PRIMARY KEY,
    current INTEGER,
    last INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS versions (
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    content_hash TEXT NOT NULL,
    record BLOB NOT NULL,
    summary BLOB NOT NULL,
    PRIMARY KEY (name, version),
    UNIQUE (name, content_hash)
);
"""


class WorkflowStore:
    """The database of one server. Open it with `open`, end with `close`."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, name="workflows", schema=_SCHEMA, version=SCHEMA_VERSION)

    async def open(self) -> None:
        """Create or open the file. Raises: sqlite3.DatabaseError: it is no database of ours."""
        await self._database.open()

    async def close(self) -> None:
        """Finish what is queued and close the file."""
        await self._database.close()

    async def register(self, name: str, source: Source) -> tuple[Version, bool]:
        """Make `source` the current version; one of equal content is that version.

        Returns: the version, and whether it is new. Raises: RegistrationConflict: no room.
        """
        return await self._database.run(lambda: self._register(name, source))

    async def version(self, name: str, number: int | None = None) -> Version:
        """A version, the current one by default. Raises: UnknownWorkflow."""
        return await self._database.run(lambda: self._version(name, number))

    async def numbers(self, name: str) -> list[int]:
        """The versions of a workflow, oldest first. Raises: UnknownWorkflow."""
        return await self._database.run(lambda: self._numbers(name))

    async def summaries(self) -> list[dict[str, Any]]:
        """The current versions as listings have them, by name."""
        return await self._database.run(self._summaries)

    async def delete(self, name: str) -> None:
        """Forget a workflow with all its versions. Raises: UnknownWorkflow."""
        await self._database.run(lambda: self._delete(name))

    @property
    def _db(self) -> sqlite3.Connection:
        return self._database.connection

    def _register(self, name: str, source: Source) -> tuple[Version, bool]:
        digest = content_hash(source)
        with self._db as db:
            known = db.execute(
                "SELECT record FROM versions WHERE name = ? AND content_hash = ?", (name, digest)
            ).fetchone()
            if known is not None:
                version = msgspec.msgpack.decode(known[0], type=Version)
                db.execute(
                    "UPDATE workflows SET current = ? WHERE name = ?", (version.version, name)
                )
                return version, False
            last = db.execute("SELECT last FROM workflows WHERE name = ?", (name,)).fetchone()
            version = Version(
                name=name,
                version=(last[0] if last else 0) + 1,
                created_ms=time.time_ns() // 1_000_000,
                source=source,
            )
            record = msgspec.msgpack.encode(version)
            self._check_room(name, len(record))
            db.execute(
                "INSERT INTO workflows (name, current, last) VALUES (?, ?, ?) ON CONFLICT (name) "
                "DO UPDATE SET current = excluded.current, last = excluded.last",
                (name, version.version, version.version),
            )
            summary = msgspec.json.encode(version.describe())
            db.execute(
                "INSERT INTO versions (name, version, content_hash, record, summary) "
                "VALUES (?, ?, ?, ?, ?)",
                (name, version.version, digest, record, summary),
            )
        return version, True

    def _check_room(self, name: str, size_bytes: int) -> None:
        """Raises: RegistrationConflict."""
        db = self._db
        others = db.execute(
            "SELECT COUNT(*) FROM workflows WHERE name != ? AND current IS NOT NULL", (name,)
        ).fetchone()[0]
        if others >= MAX_WORKFLOWS:
            raise RegistrationConflict(f"there are {MAX_WORKFLOWS} workflows; delete some")
        held = db.execute("SELECT COALESCE(SUM(LENGTH(record)), 0) FROM versions").fetchone()[0]
        if held + size_bytes > MAX_BYTES:
            raise RegistrationConflict(
                f"all versions together may hold {MAX_BYTES >> 20} MB; delete some workflows"
            )

    def _version(self, name: str, number: int | None) -> Version:
        row = self._db.execute(
            "SELECT record FROM versions JOIN workflows USING (name) "
            "WHERE name = ? AND version = COALESCE(?, current)",
            (name, number),
        ).fetchone()
        if row is None:
            what = "" if number is None else f" with a version {number}"
            raise UnknownWorkflow(f"there is no workflow called {name!r}{what}", name=name)
        return msgspec.msgpack.decode(row[0], type=Version)

    def _numbers(self, name: str) -> list[int]:
        query = "SELECT version FROM versions WHERE name = ? ORDER BY version"
        numbers = [row[0] for row in self._db.execute(query, (name,))]
        if not numbers:
            raise UnknownWorkflow(f"there is no workflow called {name!r}", name=name)
        return numbers

    def _summaries(self) -> list[dict[str, Any]]:
        query = (
            "SELECT summary FROM versions JOIN workflows USING (name) "
            "WHERE version = current ORDER BY name"
        )
        return [msgspec.json.decode(row[0]) for row in self._db.execute(query)]

    def _delete(self, name: str) -> None:
        self._numbers(name)
        with self._db as db:
            db.execute("DELETE FROM versions WHERE name = ?", (name,))
            db.execute("UPDATE workflows SET current = NULL WHERE name = ?", (name,))
            db.execute(
                "DELETE FROM workflows WHERE current IS NULL AND rowid NOT IN (SELECT rowid FROM "
                "workflows WHERE current IS NULL ORDER BY rowid DESC LIMIT ?)",
                (MAX_DELETED,),
            )
