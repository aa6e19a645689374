"""The executor's main thread: takes work from the inbox, runs it, has the I/O thread report it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, assert_never

import msgspec

from ..errors import Cancelled
from ..ids import BatchId
from ..protocol import BatchDone, CallFailed, DropModels, ErrorReport, Shutdown
from ..wire import WireProblem, encode
from .batch_runner import BatchRunner
from .chain import Chain
from .io_thread import IoThread, Job, Work

log = logging.getLogger(__name__)

WARM_UP_AFTER_S: Final = 1.0


class ExecutorLoop:
    """Runs batches one after another until it is stopped.

    Args:
        note_begun: called before a batch is run.
    """

    def __init__(
        self,
        inbox: SimpleQueue[Work],
        runner: BatchRunner,
        note_begun: Callable[[BatchId], None],
    ) -> None:
        self._inbox = inbox
        self._runner = runner
        self._note_begun = note_begun
        self._chain = Chain()
        self._current: Job | None = None
        self._is_stopping = False

    def stop(self) -> None:
        """Cancel the running batch, skip the waiting ones, end `run`.

        For any thread, and for signal handlers: `SimpleQueue.put` may interrupt itself.
        """
        self._is_stopping = True
        current = self._current
        if current is not None:
            current.cancelled.set()
        self._inbox.put(Shutdown())

    def run(self, io: IoThread, warm_up: Callable[[], None]) -> None:
        """Returns when stopped. `warm_up` is called if there is nothing to do at first.

        So a fresh server gets ready while it idles, and an executor that replaces a lost one
        starts on the work that waits for it.
        """
        try:
            work = self._inbox.get(timeout=WARM_UP_AFTER_S)
        except Empty:
            warm_up()
            work = self._inbox.get()
        while not self._is_stopping:
            match work:
                case Job():
                    self._run_job(work, io)
                case DropModels():
                    self._runner.drop_models()
                case Shutdown():
                    return
                case _:
                    assert_never(work)
            work = self._inbox.get()

    def _run_job(self, job: Job, io: IoThread) -> None:
        self._current = job
        if self._is_stopping:  # looked at after `_current` is set, so that `stop` misses neither
            job.cancelled.set()

        def check_cancelled() -> None:
            if job.cancelled.is_set():
                raise Cancelled("the batch was cancelled")

        # A recall that comes later than this finds the batch begun.
        is_on = not job.recalled.is_set() and self._chain.begin(job.batch, job.arrivals)
        if is_on:
            self._note_begun(job.batch.batch_id)
            done = self._runner.run(job.batch, check_cancelled, job.arrivals)
        else:
            done = self._runner.skip(job.batch)
        self._current = None
        log.debug(
            "batch_done",
            extra={"batch": done.batch_id, "op": job.batch.op, "run_s": done.run_s},
        )
        done, frames = self._encoded(done)
        self._chain.note(job.batch, done)
        io.send(done.batch_id, frames)

    def _encoded(self, done: BatchDone) -> tuple[BatchDone, list[bytes]]:
        """The report and its frames; one that is too large becomes the failure of its calls."""
        try:
            return done, encode(done)
        except WireProblem as problem:
            self._runner.discard(done)
            report = ErrorReport(
                code=problem.code,
                exception_type=type(problem).__qualname__,
                message=problem.message,
                traceback=(),
                current_inputs={},
            )
            failed = tuple(CallFailed(error=report) for _ in done.results)
            done = msgspec.structs.replace(done, results=failed)
            return done, encode(done)
