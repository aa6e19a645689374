"""Keeps the stories of live requests, says them in order, and writes their endings to the store.

`narrate` is called inside the coordinator's turn and never waits; `run` says what may be said. So
a history entry is committed before the queue count changes and the end marker is sent.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, assert_never

from ...graph_import.ir import Graph, NodeId
from ..ids import ClientId, RequestId
from ..notices import (
    AnyNotice,
    DagNodeChanged,
    EndMarker,
    Failed,
    Interrupted,
    QueueChanged,
    Succeeded,
)
from ..ops.saves import forget_request
from ..protocol import ErrorReport, PatchCoverage
from ..scheduler.actions import (
    NodeFinished,
    NodeReset,
    NodeStarted,
    Outcome,
    RequestEnded,
    RequestStarted,
)
from .coverage import CoverageBook
from .endings import error_message, history_entry
from .lanes import Ending, Lanes, Told
from .records import HistoryEntry, QueueView, Submission
from .store import Store
from .story import Story
from .views import ShownNode

log = logging.getLogger(__name__)

STORE_RETRY_S: Final = 2.0
KEPT_GRAPHS: Final = 20  # of ended requests, for pages that look back

Narrated = RequestStarted | NodeStarted | NodeFinished | NodeReset | RequestEnded


@dataclass(slots=True)
class _Live:
    """A request that waits or runs, or whose ending is still to be told."""

    submission: Submission
    story: Story
    has_started: bool = False
    start_ms: int = 0
    last_word: Succeeded | Failed | Interrupted | None = None
    shown: dict[NodeId, ShownNode] = field(default_factory=dict)


class Narrator:
    """The one who tells. `notify` must not block."""

    def __init__(self, store: Store, saves: Path, notify: Callable[[AnyNotice], None]) -> None:
        self._store = store
        self._saves = saves
        self._notify = notify
        self._live: dict[RequestId, _Live] = {}
        self._ended: dict[RequestId, _Live] = {}
        self._lanes = Lanes()
        self._coverage = CoverageBook()
        self._outbox: asyncio.Queue[Told] = asyncio.Queue()

    @property
    def num_live(self) -> int:
        """Requests that wait or run."""
        return len(self._live)

    def is_live(self, request_id: RequestId) -> bool:
        """Whether a request under this id waits or runs."""
        return request_id in self._live

    def waiting(self, request_id: RequestId) -> Submission | None:
        """The request under this id, if it has not begun to run."""
        live = self._live.get(request_id)
        return None if live is None or live.has_started else live.submission

    def accept(self, submission: Submission, graph: Graph) -> None:
        """A request waits from now on."""
        story = Story(submission=submission, graph=graph)
        self._live[submission.request_id] = _Live(submission=submission, story=story)

    def drop(self, submission: Submission) -> None:
        """Forget a request that has told nothing yet; another one under its id stays."""
        if self.submission(submission.request_id) is submission:
            del self._live[submission.request_id]

    def grow(self, request_id: RequestId, graph: Graph) -> None:
        """The request's graph was lowered further."""
        live = self._live.get(request_id)
        if live is not None and live.last_word is None:
            self._say(request_id, list(live.story.grown(graph)))

    def announce_count(self) -> None:
        """Tell everybody how many requests there are, in order with everything else."""
        self._outbox.put_nowait(QueueChanged(queue_remaining=self.num_live))

    def queue(self) -> QueueView:
        """The live requests, in order of arrival."""
        lives = self._live.values()
        return QueueView(
            running=tuple(live.submission for live in lives if live.has_started),
            pending=tuple(live.submission for live in lives if not live.has_started),
        )

    def graph(self, request_id: RequestId) -> Graph | None:
        """A live request's graph."""
        live = self._live.get(request_id)
        return None if live is None else live.story.graph

    def picture(self, request_id: RequestId) -> tuple[Graph, Mapping[NodeId, ShownNode]] | None:
        """The graph of a live request, or of one of the last that ended, as far as it was told."""
        live = self._live.get(request_id) or self._ended.get(request_id)
        return None if live is None else (live.story.graph, live.shown)

    def submission(self, request_id: RequestId) -> Submission | None:
        """A live request as it was accepted."""
        live = self._live.get(request_id)
        return None if live is None else live.submission

    def hidden(self, request_id: RequestId, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """The texts that the request supplies under `names`; those it hasn't are left out."""
        given = self._live[request_id].submission.hidden
        return tuple((name, given[name]) for name in names if name in given)

    def running_node(self, client_id: ClientId) -> str | None:
        """The node that the client's running request executes."""
        for live in self._live.values():
            if live.submission.client_id == client_id and live.has_started:
                return live.story.current_node
        return None

    def note_coverage(self, coverage: Iterable[PatchCoverage]) -> None:
        """A batch ran with these patches: for the records of all requests that use them."""
        self._coverage.note(coverage)

    def narrate(self, action: Narrated) -> None:
        """Turn an action of the scheduler into a piece of the request's story."""
        live = self._live.get(action.request_id)
        if live is None:  # deleted while it waited
            return
        match action:
            case RequestStarted():
                self._start(live)
            case NodeStarted():
                self._show(live, action.node_id, "running", action)
                self._say(action.request_id, list(live.story.node_started(action.node_id)))
            case NodeFinished():
                self._show(live, action.node_id, "done", action)
                told = live.story.node_finished(action.node_id, action.ui, action.preview)
                self._say(action.request_id, list(told))
            case NodeReset():
                self._show(live, action.node_id, "waiting", None)
            case RequestEnded():
                self._end(live, action)
            case _:
                assert_never(action)

    def fail_unstarted(self, request_id: RequestId, error: ErrorReport) -> None:
        """A request that was taken up after a restart can't be run any more."""
        self._end(
            self._live[request_id],
            RequestEnded(request_id=request_id, outcome=Outcome.ERROR, node_id=None, error=error),
        )

    async def run(self) -> None:
        """Say what may be said, for ever."""
        while True:
            told = await self._outbox.get()
            if isinstance(told, Ending):
                await self._conclude(told.request_id)
            else:
                self._notify(told)

    def _start(self, live: _Live) -> None:
        live.has_started = True
        live.start_ms = _now_ms()
        submission = live.submission
        self._lanes.open(submission.request_id, submission.client_id, float(submission.number))
        count = QueueChanged(queue_remaining=self.num_live)
        self._say(submission.request_id, [count, *live.story.started(live.start_ms)])

    def _end(self, live: _Live, action: RequestEnded) -> None:
        if not live.has_started:
            self._start(live)
        submission = live.submission
        request_id, client_id = submission.request_id, submission.client_id
        node_id, node_type = _place(live.story, action.node_id)
        if action.outcome is Outcome.SUCCESS:
            live.last_word = Succeeded(
                request_id=request_id, client_id=client_id, timestamp_ms=_now_ms()
            )
        elif action.error is not None:
            live.last_word = Failed(
                request_id=request_id,
                client_id=client_id,
                node_id=node_id,
                node_type=node_type,
                executed=live.story.executed,
                error=action.error,
                timestamp_ms=_now_ms(),
            )
        else:
            live.last_word = Interrupted(
                request_id=request_id,
                client_id=client_id,
                node_id=node_id,
                node_type=node_type,
                executed=live.story.executed,
                timestamp_ms=_now_ms(),
            )
        self._say(request_id, [live.last_word, Ending(request_id=request_id)])

    async def _conclude(self, request_id: RequestId) -> None:
        """History, queue count and end marker change together, in this order."""
        live = self._live[request_id]
        last_word = live.last_word
        if last_word is None:
            raise RuntimeError(f"request {request_id} ends without a last word")
        patches = self._coverage.of(live.story.graph)
        await self._finish(history_entry(live.story, live.start_ms, last_word, patches))
        await asyncio.to_thread(forget_request, self._saves, request_id)
        self._ended[request_id] = self._live.pop(request_id)
        if len(self._ended) > KEPT_GRAPHS:
            del self._ended[next(iter(self._ended))]
        self._notify(QueueChanged(queue_remaining=self.num_live))
        self._notify(EndMarker(request_id=request_id, client_id=live.submission.client_id))
        if isinstance(last_word, Failed):
            fields = {"request_id": request_id, "node_id": last_word.node_id}
            log.warning("request_failed", extra={**fields, "error": error_message(last_word)})

    async def _finish(self, entry: HistoryEntry) -> None:
        """Store an ending; a disk that is full or away for a while must not end the server."""
        while True:
            try:
                await self._store.finish(entry)
            except sqlite3.Error as problem:
                log.error("store_failed", extra={"reason": str(problem)})
                await asyncio.sleep(STORE_RETRY_S)
            else:
                return

    def _say(self, request_id: RequestId, told: list[Told]) -> None:
        for piece in self._lanes.tell(request_id, told):
            self._outbox.put_nowait(piece)

    def _show(
        self, live: _Live, node_id: NodeId, state: str, action: NodeStarted | NodeFinished | None
    ) -> None:
        """For pages that draw the DAG: told at once, whatever the lane is busy with."""
        executor = None if action is None else action.executor
        live.shown[node_id] = ShownNode(state=state, executor=executor)
        self._outbox.put_nowait(
            DagNodeChanged(
                request_id=live.submission.request_id,
                client_id=live.submission.client_id,
                node_id=node_id,
                state=state,
                executor=executor,
            )
        )


def _place(story: Story, node_id: NodeId | None) -> tuple[str, str]:
    """The submitted node (id, class) that a DAG node or a pending node belongs to."""
    for node in story.graph.nodes:
        if node.id == node_id:
            return node.origin.node_id, node.origin.class_type
    wanted = str(node_id) if node_id is not None else story.current_node
    for member in story.graph.members:
        if member.node_id == wanted:
            return member.node_id, member.class_type
    return "", ""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
