"""The coordinator: what the server asks of the plant, and what the plant asks of the server.

Lives in the server's process and on its event loop. `driver.py` takes turns with the scheduler,
`narrator.py` tells the clients, `store.py` keeps what was accepted. Nothing here imports torch.
Source: architecture, sections 6, 10 and 14.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ...graph_import.errors import ModelFileProblem, NodeloomError
from ...graph_import.ir import Graph
from ..config import Settings
from ..data_plane.begun import take_begun
from ..errors import AdmissionRejected
from ..ids import ClientId, ExecutorId, RequestId
from ..notices import AnyNotice
from ..ops.saves import forget_others
from ..protocol import Hello
from ..scheduler.events import (
    AnyEvent,
    BatchReported,
    ExecutorJoined,
    ExecutorLost,
    ModelsDropped,
    RequestArrived,
    RequestCancelled,
)
from ..scheduler.forecast import Forecast
from ..scheduler.scheduler import Scheduler, SchedulerConfig
from .checkpoint_place import CheckpointPlace
from .driver import Driver, error_report
from .journal import Journal
from .link import ExecutorLink
from .narrator import Narrator
from .records import ExecutorView, HistoryEntry, Importer, QueueView, Submission
from .store import Store
from .views import GraphView, executor_views, graph_view

log = logging.getLogger(__name__)

SILENCE_LIMIT_S = 20.0
SILENCE_CHECK_S = 1.0
MAX_COUNTED = 2**31  # a client's own number beyond it doesn't move our counter
EMPTY_GRAPH = Graph(nodes=(), sinks=(), pending=(), members=())


class Coordinator:
    """All that the server asks of the plant. `start` it before anything else.

    `kill_executor` is called with an executor that shows no sign of life; whoever started its
    process sets it.
    """

    def __init__(
        self, settings: Settings, importer: Importer, notify: Callable[[AnyNotice], None]
    ) -> None:
        self._settings = settings
        self._importer = importer
        self._config = SchedulerConfig(is_strict=settings.strict)
        self._scheduler = Scheduler(self._config)
        self._store = Store(settings.state_directory / "nodeloom.db")
        self._narrator = Narrator(self._store, settings.saves_directory, notify)
        self._started: tuple[Driver, ExecutorLink, CheckpointPlace] | None = None
        self._counter = 0
        self.kill_executor: Callable[[ExecutorId, str], None] | None = None

    async def start(self) -> None:
        """Open the store, take up what was left unfinished, listen to executors."""
        await self._store.open()
        unfinished = await self._store.unfinished()
        ids = [submission.request_id for submission in unfinished]
        await asyncio.to_thread(forget_others, self._settings.saves_directory, ids)
        name = time.strftime("%Y%m%d-%H%M%S") + f"-{time.time_ns() % 10**9:09d}"
        journal = Journal(self._settings.state_directory / "journal", name, self._config)
        link = ExecutorLink(time.monotonic)
        place = CheckpointPlace(link.folder)
        driver = Driver(
            self._scheduler, self._narrator, link, self._importer, journal, place.folder
        )
        self._started = driver, link, place
        for work in (self._narrator.run(), self._listen(), self._watch_silence()):
            driver.spawn(work)
        if unfinished:
            numbers = [item.number for item in unfinished if abs(item.number) < MAX_COUNTED]
            self._counter = int(max(numbers, default=-1)) + 1
            log.info("requests_taken_up", extra={"num_requests": len(unfinished)})
        for submission in unfinished:
            await self._take_up(submission)

    async def stop(self) -> None:
        """Stop all tasks; unfinished requests stay in the store for the next start."""
        if self._started is not None:
            driver, link, place = self._started
            await driver.stop()
            place.close()
            link.close()
        await self._store.close()

    @property
    def failure(self) -> asyncio.Future[None]:
        """Ends with the exception that makes it pointless to go on."""
        return self._driver.failure

    @property
    def _driver(self) -> Driver:
        if self._started is None:
            raise RuntimeError("the coordinator is not started")
        return self._started[0]

    @property
    def _link(self) -> ExecutorLink:
        if self._started is None:
            raise RuntimeError("the coordinator is not started")
        return self._started[1]

    @property
    def checkpoint_directory(self) -> Path:
        """Where executors keep what is to outlive them."""
        if self._started is None:
            raise RuntimeError("the coordinator is not started")
        return self._started[2].path

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
            self._narrator.drop(submission)
            raise
        self._narrator.announce_count()
        await self._arrive(submission, graph)

    def queue_remaining(self) -> int:
        """Requests that wait or run."""
        return self._narrator.num_live

    def is_live(self, request_id: RequestId) -> bool:
        """Whether a request under this id waits or runs."""
        return self._narrator.is_live(request_id)

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
        for running in self._scheduler.running_order():
            if request_id in (None, running):
                await self._driver.happen(RequestCancelled(request_id=running))
                return

    async def free(self) -> None:
        """Have all executors unload their models as soon as they are idle."""
        await self._driver.happen(ModelsDropped())

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
        """The lowered graph of a live or lately ended request, with the state of every node."""
        picture = self._narrator.picture(request_id)
        if picture is None:
            return None
        graph, shown = picture
        return graph_view(request_id, graph, shown, self._scheduler.request_view(request_id))

    def forecast(self, graph: Graph) -> Forecast:
        """What a request with this graph would meet if it came now; nothing is accepted."""
        return self._scheduler.forecast(graph)

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
            lost = ExecutorLost(
                executor=executor,
                incarnation=incarnation,
                reason=reason,
                begun=take_begun(self.checkpoint_directory, executor, incarnation),
            )
            await self._driver.happen(lost)

    def watch(self, task: asyncio.Task[None]) -> None:
        """Done-callback of tasks that must not fail."""
        self._driver.watch(task)

    # within ------------------------------------------------------------------------------------

    async def _arrive(self, submission: Submission, graph: Graph) -> None:
        """Hand a stored request to the scheduler, unless it was deleted meanwhile."""

        async def arrive() -> AnyEvent | None:
            if self._narrator.submission(submission.request_id) is not submission:
                return None
            return RequestArrived(
                request_id=submission.request_id, number=float(submission.number), graph=graph
            )

        await self._driver.take_turn(arrive)

    async def _take_up(self, submission: Submission) -> None:
        """Lower a stored request again after a restart; one that can't be lowered has failed."""
        try:
            graph = await asyncio.to_thread(
                self._importer.lower,
                submission.prompt,
                submission.roots,
                submission.extra_data,
            )
        except (NodeloomError, OSError) as problem:
            ours = problem if isinstance(problem, NodeloomError) else ModelFileProblem(str(problem))
            self._narrator.accept(submission, EMPTY_GRAPH)
            self._narrator.fail_unstarted(submission.request_id, error_report(ours))
            return
        self._narrator.accept(submission, graph)
        await self._arrive(submission, graph)

    async def _drop(self, request_ids: Sequence[RequestId]) -> None:
        """Take waiting requests out; one that has begun meanwhile goes on."""
        for request_id in request_ids:

            async def drop(request_id: RequestId = request_id) -> AnyEvent | None:
                submission = self._narrator.waiting(request_id)
                if submission is None:
                    return None
                self._narrator.drop(submission)
                self._narrator.announce_count()
                # Within the turn: a new request under this id must not be deleted with it.
                await self._store.forget([request_id])
                return RequestCancelled(request_id=request_id)

            await self._driver.take_turn(drop)

    async def _listen(self) -> None:
        while True:
            message = await self._link.receive()
            if isinstance(message, Hello):
                log.info("executor_joined", extra={"executor": message.executor})
                await self._driver.happen(
                    ExecutorJoined(executor=message.executor, incarnation=message.incarnation)
                )
            elif message is not None:
                self._narrator.note_coverage(message.coverage)
                fields = {name: getattr(message, name) for name in message.__struct_fields__}
                await self._driver.happen(BatchReported(**fields))

    async def _watch_silence(self) -> None:
        """Give up executors that say nothing or don't stop; have their processes replaced."""
        while True:
            await asyncio.sleep(SILENCE_CHECK_S)
            silent = {peer.executor: peer for peer in self._link.silent(SILENCE_LIMIT_S)}
            stuck = {name: self._link.peers[name] for name in self._driver.overdue() - set(silent)}
            for reason, peers in (("executor_silent", silent), ("executor_stuck", stuck)):
                for peer in peers.values():
                    log.error(reason, extra={"executor": peer.executor})
                    if self.kill_executor is not None:
                        self.kill_executor(peer.executor, peer.incarnation)
                    await self.executor_exited(peer.executor, peer.incarnation, reason)
