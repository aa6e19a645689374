"""Events as they happened, with a digest of the actions that followed; and their replay.

One file per server start, one JSON line per event. Replaying a journal through a new scheduler must
give the same actions: so a failure seen once can be looked at again, at leisure. Previews are left
out (pictures, not decisions).
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Full, Queue
from typing import Final

import msgspec

from ..errors import InvariantBroken
from ..protocol import CallDone
from ..scheduler.actions import AnyAction, NodeFinished
from ..scheduler.events import AnyEvent, BatchReported
from ..scheduler.scheduler import Scheduler, SchedulerConfig

log = logging.getLogger(__name__)

MAX_JOURNAL_BYTES: Final = 256 * 1024 * 1024
KEPT_JOURNALS: Final = 5
MAX_BEHIND: Final = 20_000  # events that wait to be written


class Head(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """First line: with what configuration the scheduler started."""

    config: SchedulerConfig


class Line(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One event, when it happened (monotonic seconds) and what it led to."""

    now_s: float
    event: AnyEvent
    actions: str


def digest(actions: Sequence[AnyAction]) -> str:
    """A short fingerprint of actions, previews aside."""
    bare = [
        msgspec.structs.replace(action, preview=None)
        if isinstance(action, NodeFinished)
        else action
        for action in actions
    ]
    return hashlib.sha256(msgspec.json.encode(bare)).hexdigest()[:16]


def without_previews(event: AnyEvent) -> AnyEvent:
    """The event as it is journaled."""
    if not isinstance(event, BatchReported):
        return event
    results = tuple(
        msgspec.structs.replace(result, preview=None) if isinstance(result, CallDone) else result
        for result in event.results
    )
    return msgspec.structs.replace(event, results=results)


class Journal:
    """Writes the journal of one server start below `folder`, where only a few old ones are kept.

    Encoding and writing happen on a thread. A journal that grows too large, can't be written or
    falls too far behind ends there, which is logged: decisions never wait for it.
    """

    def __init__(self, folder: Path, name: str, config: SchedulerConfig) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(folder.glob("journal-*.jsonl"))[: -(KEPT_JOURNALS - 1)]:
            old.unlink(missing_ok=True)
        self.path = folder / f"journal-{name}.jsonl"
        self._file = self.path.open("wb", buffering=0)
        self.path.chmod(0o600)
        self._num_bytes = 0
        self._is_ended = False
        self._lines: Queue[tuple[float, AnyEvent, Sequence[AnyAction]] | None] = Queue(MAX_BEHIND)
        self._write(msgspec.json.encode(Head(config=config)))
        self._thread = threading.Thread(target=self._write_lines, name="journal", daemon=True)
        self._thread.start()

    def record(self, now_s: float, event: AnyEvent, actions: Sequence[AnyAction]) -> None:
        """Append an event and the digest of its actions."""
        if self._is_ended:
            return
        try:
            self._lines.put_nowait((now_s, event, actions))
        except Full:
            self._end("it fell behind")

    def close(self) -> None:
        """Write what is left and close the file."""
        self._lines.put(None)
        self._thread.join()
        self._file.close()

    def _write_lines(self) -> None:
        while (item := self._lines.get()) is not None:
            if self._is_ended:
                continue
            now_s, event, actions = item
            line = Line(now_s=now_s, event=without_previews(event), actions=digest(actions))
            try:
                self._write(msgspec.json.encode(line))
            except OSError as problem:
                self._end(str(problem))
            if self._num_bytes > MAX_JOURNAL_BYTES:
                self._end("it is full")

    def _end(self, reason: str) -> None:
        self._is_ended = True
        log.warning("journal_ended", extra={"path": str(self.path), "reason": reason})

    def _write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._num_bytes += len(line) + 1


def read_journal(path: Path) -> Iterator[Head | Line]:
    """The lines of a journal; a half-written last line (a crash) ends it."""
    decoder = msgspec.json.Decoder(Head | Line)
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield decoder.decode(line)


def replay(path: Path) -> Scheduler:
    """The scheduler as the journal left it.

    Raises: InvariantBroken: the actions differ from those recorded (with the line's number).
    """
    lines = read_journal(path)
    head = next(lines, None)
    if not isinstance(head, Head):
        raise InvariantBroken(f"{path}: not a journal")
    scheduler = Scheduler(head.config)
    for number, line in enumerate(lines, start=2):
        if not isinstance(line, Line):
            raise InvariantBroken(f"{path}, line {number}: a second head")
        actions = scheduler.on_event(line.event, line.now_s)
        if digest(actions) != line.actions:
            raise InvariantBroken(f"{path}, line {number}: the replay acts otherwise")
    return scheduler
