"""The coordinator: live driver of the scheduler. Performs its actions, decides nothing.

Lives in the server's process and on its event loop. Events go into the scheduler one at a time;
what it answers is journaled and carried out in order: messages to executors, lowering of graphs,
stories to clients. Nothing here imports torch. Source: architecture, sections 6, 10 and 14.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence

import msgspec

from ...graph_import.errors import ImportRejected, ModelFileProblem
from ...graph_import.handles import Scalar
from ...graph_import.ir import Graph, NodeId
from ..config import Settings
from ..errors import AdmissionRejected
from ..ids import ClientId, ExecutorId, RequestId
from ..notices import AnyNotice
from ..protocol import CancelBatch, DropModels, ErrorReport, Hello, ReleaseTensors
from ..scheduler.actions import (
    AnyAction,
    CancelSent,
    Drop,
    LowerPending,
    NodeFinished,
    NodeReset,
    NodeStarted,
    Release,
    RequestEnded,
    RequestStarted,
    SendBatch,
)
from ..scheduler.events import (
    AnyEvent,
    BatchReported,
    ExecutorJoined,
    ExecutorLost,
    GraphGrown,
    GrowthFailed,
    ModelsDropped,
    RequestArrived,
    RequestCancelled,
)
from ..scheduler.scheduler import Scheduler, SchedulerConfig
from .journal import Journal
from .link import ExecutorLink
from .narrator import Narrator
from .records import ExecutorView, HistoryEntry, Importer, QueueView, Submission
from .store import Store
from .views import GraphView, executor_views, graph_view

log = logging.getLogger(__name__)

SILENCE_LIMIT_S = 20.0
SILENCE_CHECK_S = 1.0


class Coordinator:
    """All that the server asks of the plant. Start it before anything else."""

    def __init__(
        self, settings: Settings, importer: Importer, notify: Callable[[AnyNotice], None]
    ) -> None:
        self._settings = settings
        self._importer = importer
        self._config = SchedulerConfig(is_strict=settings.strict)
        self._scheduler = Scheduler(self._config)
        self._store = Store(settings.state_directory / "nodeloom.db")
        self._narrator = Narrator(self._store, settings.saves_directory, notify)
        self._link = ExecutorLink(time.monotonic)
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._journal: Journal | None = None
        self._counter = 0
        self.failure: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Open the store, take up what was left unfinished, listen to executors."""
        self.failure = asyncio.get_running_loop().create_future()
        await self._store.open()
        name = time.strftime("%Y%m%d-%H%M%S") + f"-{time.time_ns() % 10**9:09d}"
        self._journal = Journal(self._settings.state_directory / "journal", name, self._config)
        self._spawn(self._narrator.run())
        self._spawn(self._listen())
        self._spawn(self._watch_silence())
        unfinished = await self._store.unfinished()
        if unfinished:
            self._counter = max(0, int(max(item.number for item in unfinished)) + 1)
            log.info("requests_taken_up", extra={"num_requests": len(unfinished)})
        for submission in unfinished:
            await self._take_up(submission)

    async def stop(self) -> None:
        """Stop all tasks; unfinished requests stay in the store for the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._store.close()
        if self._journal is not None:
            self._journal.close()
        self._link.close()

    # what the server asks -----------------------------------------------------------------------

    def next_number(self) -> int:
        """ComfyUI's counter; it advances for refused prompts too."""
        self._counter += 1
        return self._counter - 1

    async def submit(self, submission: Submission, graph: Graph) -> None:
        """Accept a request: durable when this returns.

        Raises: AdmissionRejected: the queue is full, or a live request has this id.
        """
        limit = self._settings.max_queue
        if self.queue_remaining() >= limit:
            raise AdmissionRejected(f"the queue is full ({limit} requests)", max_queue=limit)
        if self._narrator.is_live(submission.request_id):
            raise AdmissionRejected(
                f"a request with the id {submission.request_id!r} is waiting or running",
                prompt_id=submission.request_id,
            )
        self._narrator.accept(submission, graph)
        try:
            await self._store.accept(submission)
        except BaseException:
            self._narrator.drop(submission.request_id)
            raise
        self._narrator.announce_count()
        await self._arrive(submission, graph)

    def queue_remaining(self) -> int:
        """Requests that wait or run."""
        return self._narrator.num_live

    def queue(self) -> QueueView:
        """The live requests."""
        return self._narrator.queue()

    async def delete_pending(self, request_ids: Iterable[RequestId]) -> None:
        """Drop waiting requests; others are left alone, unknown ids are no error."""
        await self._drop(list(request_ids))

    async def clear_pending(self) -> None:
        """Drop all waiting requests."""
        await self._drop([item.request_id for item in self.queue().pending])
        self._narrator.announce_count()

    async def interrupt(self, request_id: RequestId | None) -> None:
        """Stop a running request: this one, or the first in ComfyUI's order."""
        running = sorted(self.queue().running, key=lambda item: (item.number, item.request_id))
        for item in running:
            if request_id in (None, item.request_id):
                await self._happen(RequestCancelled(request_id=item.request_id))
                return

    async def free(self) -> None:
        """Have all executors unload their models as soon as they are idle."""
        await self._happen(ModelsDropped())

    async def history(self, *, max_items: int | None, offset: int | None) -> list[HistoryEntry]:
        """Ended requests, oldest first, bounded as `GET /history` says."""
        return await self._store.entries(max_items=max_items, offset=offset)

    async def history_entry(self, request_id: RequestId) -> HistoryEntry | None:
        """How a request ended, or None while it lives or is unknown."""
        return await self._store.entry(request_id)

    async def delete_history(self, request_ids: Sequence[RequestId] | None) -> None:
        """Forget ended requests: these, or all."""
        await self._store.delete_entries(request_ids)

    def running_node(self, client_id: ClientId) -> str | None:
        """The submitted node that this client was last told to be executing, if any."""
        return self._narrator.running_node(client_id)

    def request_graph(self, request_id: RequestId) -> GraphView | None:
        """The lowered graph of a live request with the state of every node."""
        graph = self._narrator.graph(request_id)
        if graph is None:
            return None
        return graph_view(request_id, graph, self._scheduler.request_view(request_id))

    def executors(self) -> tuple[ExecutorView, ...]:
        """All connected executors."""
        return executor_views(self._link.peers.values(), self._scheduler.executors_view())

    # what the supervisor says and asks ----------------------------------------------------------

    @property
    def executor_endpoint(self) -> str:
        """Where executors say hello."""
        return self._link.endpoint

    def expect_executor(self, executor: ExecutorId, incarnation: str) -> str:
        """A process is about to be started; returns where it is to serve its tensors."""
        self._link.expect(executor, incarnation)
        return self._link.data_endpoint(executor, incarnation)

    async def executor_exited(self, executor: ExecutorId, incarnation: str, reason: str) -> None:
        """A process ended, whyever."""
        if self._link.forget(executor, incarnation):
            await self._happen(
                ExecutorLost(executor=executor, incarnation=incarnation, reason=reason)
            )

    # the driver ---------------------------------------------------------------------------------

    async def _arrive(self, submission: Submission, graph: Graph) -> None:
        await self._happen(
            RequestArrived(
                request_id=submission.request_id, number=float(submission.number), graph=graph
            )
        )

    async def _take_up(self, submission: Submission) -> None:
        """Lower a stored request again after a restart; one that can't be lowered has failed."""
        empty = Graph(nodes=(), sinks=(), pending=(), members=())
        try:
            graph = await asyncio.to_thread(
                self._importer.lower, submission.prompt, submission.roots
            )
        except (ImportRejected, ModelFileProblem) as problem:
            self._narrator.accept(submission, empty)
            self._narrator.fail_unstarted(submission.request_id, _report(problem))
            return
        self._narrator.accept(submission, graph)
        await self._arrive(submission, graph)

    async def _drop(self, request_ids: Sequence[RequestId]) -> None:
        """Take waiting requests out; one that has begun meanwhile goes on."""
        dropped = []
        async with self._turn:
            for request_id in request_ids:
                if self._narrator.is_waiting(request_id):
                    self._narrator.drop(request_id)
                    await self._react(RequestCancelled(request_id=request_id))
                    self._narrator.announce_count()
                    dropped.append(request_id)
        await self._store.forget(dropped)

    async def _happen(self, event: AnyEvent) -> None:
        """Give the scheduler an event and carry out its answer, before any other event."""
        async with self._turn:
            await self._react(event)

    async def _react(self, event: AnyEvent) -> None:
        now_s = time.monotonic()
        actions = self._scheduler.on_event(event, now_s)
        if self._journal is not None:
            self._journal.record(now_s, event, actions)
        for action in actions:
            await self._perform(action)

    async def _perform(self, action: AnyAction) -> None:
        match action:
            case SendBatch():
                await self._send_batch(action)
            case CancelSent():
                await self._link.send(action.executor, CancelBatch(batch_id=action.batch_id))
            case Release():
                await self._link.send(action.executor, ReleaseTensors(keys=action.keys))
            case Drop():
                await self._link.send(action.executor, DropModels())
            case LowerPending():
                self._spawn(self._lower(action))
            case RequestStarted() | NodeStarted() | NodeFinished() | NodeReset() | RequestEnded():
                self._narrator.narrate(action)

    async def _send_batch(self, action: SendBatch) -> None:
        calls = tuple(
            msgspec.structs.replace(call, hidden=self._narrator.hidden(call.request_id, names))
            for call, names in zip(action.batch.calls, action.hidden, strict=True)
        )
        await self._link.send(action.executor, msgspec.structs.replace(action.batch, calls=calls))

    async def _lower(self, action: LowerPending) -> None:
        graph = self._narrator.graph(action.request_id)
        submission = self._narrator.submission(action.request_id)
        if graph is None or submission is None:
            return
        known: dict[tuple[NodeId, int], Scalar] = {
            (node_id, port): value for node_id, port, value in action.values
        }
        try:
            grown = await asyncio.to_thread(
                self._importer.grow, graph, submission.prompt, submission.roots, known
            )
        except (ImportRejected, ModelFileProblem) as problem:
            await self._happen(
                GrowthFailed(
                    request_id=action.request_id,
                    pending_id=action.pending_id,
                    error=_report(problem),
                )
            )
            return
        self._narrator.grow(action.request_id, grown)
        await self._happen(GraphGrown(request_id=action.request_id, graph=grown))

    async def _listen(self) -> None:
        while True:
            message = await self._link.receive()
            if isinstance(message, Hello):
                log.info("executor_joined", extra={"executor": message.executor})
                await self._happen(
                    ExecutorJoined(executor=message.executor, incarnation=message.incarnation)
                )
            elif message is not None:
                fields = {name: getattr(message, name) for name in message.__struct_fields__}
                await self._happen(BatchReported(**fields))

    async def _watch_silence(self) -> None:
        while True:
            await asyncio.sleep(SILENCE_CHECK_S)
            for peer in self._link.silent(SILENCE_LIMIT_S):
                log.error("executor_silent", extra={"executor": peer.executor})
                await self.executor_exited(peer.executor, peer.incarnation, "no sign of life")

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self.watch)

    def watch(self, task: asyncio.Task[None]) -> None:
        """Done-callback of tasks that must not fail: our bug, so the server must not go on."""
        if task.cancelled() or task.exception() is None:
            return
        if self.failure is not None and not self.failure.done():
            self.failure.set_exception(task.exception() or RuntimeError("unknown"))


def _report(problem: ImportRejected | ModelFileProblem) -> ErrorReport:
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
