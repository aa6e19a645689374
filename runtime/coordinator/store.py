"""Accepted requests and their results, in SQLite (WAL). Accepted means durable.

All statements, and the JSON in and out of them, run on the database's thread. A request is
committed before its client hears 200; what ended is kept up to a bound, oldest first out.
Source: architecture, section 10.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from ..database import Database
from ..ids import RequestId
from .records import HistoryEntry, Submission

MAX_ENDED: Final = 10_000
SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS requests (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    request_id TEXT NOT NULL,
    submission BLOB NOT NULL,
    entry BLOB,
    ended_seq INTEGER
);
CREATE INDEX IF NOT EXISTS requests_by_id ON requests (request_id);
CREATE INDEX IF NOT EXISTS requests_by_end ON requests (ended_seq);
"""

R = TypeVar("R", Submission, HistoryEntry)


class Store:
    """The database of one server. Open it with `open`, end with `close`."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, name="store", schema=_SCHEMA, version=SCHEMA_VERSION)

    async def open(self) -> None:
        """Create or open the file. Raises: sqlite3.DatabaseError: it is no database of ours."""
        await self._database.open()

    async def close(self) -> None:
        """Finish what is queued and close the file."""
        await self._database.close()

    async def accept(self, submission: Submission) -> None:
        """Make a request durable."""
        await self._database.run(lambda: self._accept(submission))

    async def finish(self, entry: HistoryEntry) -> None:
        """Record how a request ended; an older entry under the same id goes."""
        await self._database.run(lambda: self._finish(entry))

    async def forget(self, request_ids: Sequence[RequestId]) -> None:
        """Delete requests that never ran."""
        await self._database.run(lambda: self._forget(request_ids))

    async def unfinished(self) -> list[Submission]:
        """What was accepted and not ended, in order of arrival."""
        query = "SELECT submission FROM requests WHERE ended_seq IS NULL ORDER BY seq"
        return await self._database.run(lambda: self._read(Submission, query, ()))

    async def entry(self, request_id: RequestId) -> HistoryEntry | None:
        """The history entry under an id."""
        query = "SELECT entry FROM requests WHERE request_id = ? AND ended_seq IS NOT NULL"
        found = await self._database.run(lambda: self._read(HistoryEntry, query, (request_id,)))
        return found[-1] if found else None

    async def entries(self, *, max_items: int | None, offset: int | None) -> list[HistoryEntry]:
        """Ended requests, oldest first; see `GET /history` for what the bounds mean.

        Source: spec comfyui-api/api.md, section 4.
        """
        return await self._database.run(lambda: self._entries(max_items, offset))

    async def delete_entries(self, request_ids: Sequence[RequestId] | None) -> None:
        """Delete ended requests: these, or all of them."""
        await self._database.run(lambda: self._delete_entries(request_ids))

    @property
    def _db(self) -> sqlite3.Connection:
        return self._database.connection

    def _accept(self, submission: Submission) -> None:
        row = (submission.request_id, msgspec.json.encode(submission))
        with self._db as db:
            db.execute("INSERT INTO requests (request_id, submission) VALUES (?, ?)", row)

    def _read(self, kind: type[R], query: str, parameters: tuple[object, ...]) -> list[R]:
        rows = self._db.execute(query, parameters)
        return [msgspec.json.decode(row[0], type=kind) for row in rows]

    def _finish(self, entry: HistoryEntry) -> None:
        request_id = entry.submission.request_id
        with self._db as db:
            db.execute(
                "DELETE FROM requests WHERE request_id = ? AND ended_seq IS NOT NULL", (request_id,)
            )
            top = db.execute("SELECT COALESCE(MAX(ended_seq), 0) FROM requests").fetchone()[0]
            db.execute(
                "UPDATE requests SET entry = ?, ended_seq = ? WHERE request_id = ?",
                (msgspec.json.encode(entry), top + 1, request_id),
            )
            db.execute(
                "DELETE FROM requests WHERE ended_seq IS NOT NULL AND ended_seq <= ?",
                (top + 1 - MAX_ENDED,),
            )

    def _forget(self, request_ids: Sequence[RequestId]) -> None:
        with self._db as db:
            db.executemany(
                "DELETE FROM requests WHERE request_id = ? AND ended_seq IS NULL",
                [(request_id,) for request_id in request_ids],
            )

    def _entries(self, max_items: int | None, offset: int | None) -> list[HistoryEntry]:
        if max_items is not None and max_items <= 0:
            return []
        ended = "SELECT entry FROM requests WHERE ended_seq IS NOT NULL ORDER BY ended_seq"
        if offset is not None and offset >= 0:
            limit = -1 if max_items is None else max_items
            return self._read(HistoryEntry, f"{ended} LIMIT ? OFFSET ?", (limit, offset))
        if max_items is None:
            return self._read(HistoryEntry, ended, ())
        return self._read(HistoryEntry, f"{ended} DESC LIMIT ?", (max_items,))[::-1]

    def _delete_entries(self, request_ids: Sequence[RequestId] | None) -> None:
        with self._db as db:
            if request_ids is None:
                db.execute("DELETE FROM requests WHERE ended_seq IS NOT NULL")
                return
            db.executemany(
                "DELETE FROM requests WHERE request_id = ? AND ended_seq IS NOT NULL",
                [(request_id,) for request_id in request_ids],
            )
