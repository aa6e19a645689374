"""Takes turns with the scheduler: one event in, its actions carried out in order, then the next.

Whatever goes wrong inside a turn is our bug and ends the server (`failure`): half-performed actions
would leave a scheduler that believes what isn't so. What others do wrong never gets that far.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

import msgspec

from ...graph_import.errors import ImportRejected, NodeloomError
from ...graph_import.handles import Scalar
from ...graph_import.ir import NodeId
from ..data_plane.checkpoints import CheckpointFolder
from ..ids import BatchId, ExecutorId
from ..protocol import (
    CallFailed,
    CancelBatch,
    DropModels,
    ErrorReport,
    InputReady,
    RecallBatches,
    ReleaseTensors,
)
from ..scheduler.actions import (
    AnyAction,
    CancelSent,
    Drop,
    DropCheckpoints,
    LowerPending,
    NodeFinished,
    NodeReset,
    NodeStarted,
    Provide,
    Recall,
    Release,
    RequestEnded,
    RequestStarted,
    SendBatch,
    SweepCheckpoints,
)
from ..scheduler.events import AnyEvent, BatchReported, ExecutorLost, GraphGrown, GrowthFailed
from ..scheduler.scheduler import Scheduler
from ..wire import WireProblem
from .journal import Journal
from .link import ExecutorLink
from .narrator import Narrator
from .records import Importer

log = logging.getLogger(__name__)

CANCEL_LIMIT_S = 60.0

Step = Callable[[], Awaitable[AnyEvent | None]]


class Driver:
    """The scheduler's live driver. `failure` ends with the exception that stops the server."""

    def __init__(
        self,
        scheduler: Scheduler,
        narrator: Narrator,
        link: ExecutorLink,
        importer: Importer,
        journal: Journal,
        checkpoints: CheckpointFolder,
    ) -> None:
        self.failure: Final[asyncio.Future[None]] = asyncio.get_running_loop().create_future()
        self._scheduler = scheduler
        self._narrator = narrator
        self._link = link
        self._importer = importer
        self._journal = journal
        self._checkpoints = checkpoints
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled_s: dict[tuple[ExecutorId, BatchId], float] = {}

    async def happen(self, event: AnyEvent) -> None:
        """Give the scheduler an event and carry out its answer, before any other event."""

        async def as_it_is() -> AnyEvent:
            return event

        await self.take_turn(as_it_is)

    async def take_turn(self, step: Step) -> None:
        """Run `step` while nothing else happens, and let happen what it returns (if anything)."""
        async with self._turn:
            try:
                event = await step()
                if event is not None:
                    await self._react(event)
            except Exception as problem:
                self._fail(problem)
                raise

    def overdue(self) -> set[ExecutorId]:
        """Executors that don't stop: they were told to cancel a batch long ago, and run it still.

        The flag is tested between model calls; one call may be endless on its own.
        """
        limit_s = time.monotonic() - CANCEL_LIMIT_S
        return {executor for (executor, _), at_s in self._cancelled_s.items() if at_s < limit_s}

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run a task of ours until `stop`; its failure ends the server."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self.watch)

    def watch(self, task: asyncio.Task[None]) -> None:
        """Done-callback of tasks that must not fail: our bug, so the server must not go on."""
        if not task.cancelled() and task.exception() is not None:
            self._fail(task.exception() or RuntimeError("unknown"))

    async def stop(self) -> None:
        """End all tasks."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._journal.close()

    def _fail(self, problem: BaseException) -> None:
        if not self.failure.done():
            log.critical("coordinator_broken", exc_info=problem)
            self.failure.set_exception(problem)

    async def _react(self, event: AnyEvent) -> None:
        events = deque([event])
        while events:
            event = events.popleft()
            self._note_stopped(event)
            now_s = time.monotonic()
            actions = self._scheduler.on_event(event, now_s)
            self._journal.record(now_s, event, actions)
            for action in actions:
                events.extend(await self._perform(action))

    def _note_stopped(self, event: AnyEvent) -> None:
        if isinstance(event, BatchReported):
            self._cancelled_s.pop((event.executor, event.batch_id), None)
        elif isinstance(event, ExecutorLost):
            for key in [key for key in self._cancelled_s if key[0] == event.executor]:
                del self._cancelled_s[key]

    async def _perform(self, action: AnyAction) -> tuple[AnyEvent, ...]:
        """Carry out one action; returns what it led to at once."""
        match action:
            case SendBatch():
                return await self._send_batch(action)
            case Provide(executor=executor, batch_id=batch_id, awaited=awaited, value=value):
                ready = InputReady(batch_id=batch_id, awaited=awaited, value=value)
                await self._link.send(executor, ready)
            case CancelSent():
                self._cancelled_s[action.executor, action.batch_id] = time.monotonic()
                await self._link.send(action.executor, CancelBatch(batch_id=action.batch_id))
            case Recall():
                await self._link.send(action.executor, RecallBatches(batch_ids=action.batch_ids))
            case Release():
                await self._link.send(action.executor, ReleaseTensors(keys=action.keys))
            case DropCheckpoints() | SweepCheckpoints():
                self._delete(action)
            case Drop():
                await self._link.send(action.executor, DropModels())
            case LowerPending():
                self.spawn(self._lower(action))
            case RequestStarted() | NodeStarted() | NodeFinished() | NodeReset() | RequestEnded():
                self._narrator.narrate(action)
        return ()

    def _delete(self, action: DropCheckpoints | SweepCheckpoints) -> None:
        """Delete files of a dead executor. They are few and in memory: that takes no thread."""
        try:
            if isinstance(action, DropCheckpoints):
                self._checkpoints.remove(action.names)
            else:
                self._checkpoints.sweep(action.executor, action.incarnation, action.kept)
        except OSError as problem:  # they go with the folder at the end
            log.warning("checkpoints_left", extra={"reason": str(problem)})

    async def _send_batch(self, action: SendBatch) -> tuple[AnyEvent, ...]:
        """Send it; a batch that is too large for a message has failed."""
        calls = tuple(
            msgspec.structs.replace(call, hidden=self._narrator.hidden(call.request_id, names))
            for call, names in zip(action.batch.calls, action.hidden, strict=True)
        )
        batch = msgspec.structs.replace(action.batch, calls=calls)
        try:
            await self._link.send(action.executor, batch)
        except WireProblem as problem:
            failed = CallFailed(error=error_report(problem))
            return (self._unsent(action, failed),)
        return ()

    def _unsent(self, action: SendBatch, failed: CallFailed) -> BatchReported:
        view = self._scheduler.executors_view()[action.executor]
        return BatchReported(
            executor=action.executor,
            incarnation=view.incarnation,
            batch_id=action.batch.batch_id,
            results=(failed,) * len(action.batch.calls),
            resident=view.resident,
            loaded=(),
            run_s=0.0,
        )

    async def _lower(self, action: LowerPending) -> None:
        """Lower the request's graph again. By the time that it is done, the request may be gone,
        and another one may go by its id."""
        request_id = action.request_id
        graph = self._narrator.graph(request_id)
        submission = self._narrator.submission(request_id)
        if graph is None or submission is None:
            return
        known: dict[tuple[NodeId, int], Scalar] = {
            (node_id, port): value for node_id, port, value in action.values
        }
        answer: AnyEvent
        try:
            grown = await asyncio.to_thread(
                self._importer.grow,
                graph,
                submission.prompt,
                submission.roots,
                submission.extra_data,
                known,
            )
            answer = GraphGrown(request_id=request_id, graph=grown)
        except NodeloomError as problem:
            answer = GrowthFailed(
                request_id=request_id, pending_id=action.pending_id, error=error_report(problem)
            )

        async def apply() -> AnyEvent | None:
            if self._narrator.submission(request_id) is not submission:
                return None
            if isinstance(answer, GraphGrown):
                self._narrator.grow(request_id, answer.graph)
            return answer

        await self.take_turn(apply)


def error_report(problem: NodeloomError) -> ErrorReport:
    """An error of ours, as clients are told of a failed node."""
    text = problem.message
    if isinstance(problem, ImportRejected) and problem.problems:
        first = problem.problems[0]
        text = f"{first.message}: {first.details} (node {first.node_id}, {first.class_type})"
    return ErrorReport(
        code=problem.code,
        exception_type=type(problem).__name__,
        message=text,
        traceback=(),
        current_inputs={},
    )
