"""The executor's I/O thread: owns all sockets that others talk to, whatever the device does.

It reads the coordinator's messages, serves tensor fetches, sends reports and heartbeats, sets
cancel flags at once, and notices when the parent process is gone.
"""

from __future__ import annotations

import logging
import math
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final, assert_never

import psutil
import zmq

from ..config import ExecutorSettings
from ..data_plane.base import DataPlane
from ..data_plane.zmq import TensorServer
from ..ids import BatchId
from ..protocol import (
    PROTOCOL_VERSION,
    CancelBatch,
    DropModels,
    Heartbeat,
    Hello,
    InputReady,
    RecallBatches,
    ReleaseTensors,
    RunBatch,
    Shutdown,
)
from ..wire import WireProblem, bound, decode_to_executor, encode
from .deferred import Arrivals

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 0.5
FLUSH_S: Final = 2.0  # how long reports may still go out after the main thread is done
STDIN: Final = 0


@dataclass(slots=True)
class Job:
    """A batch for the main thread, with its late inputs and the flags that stop it.

    Args:
        cancelled: it stops at the next boundary within it.
        recalled: it doesn't begin, unless it has begun.
    """

    batch: RunBatch
    cancelled: threading.Event = field(default_factory=threading.Event)
    recalled: threading.Event = field(default_factory=threading.Event)
    arrivals: Arrivals = field(default_factory=Arrivals)


Work = Job | DropModels | Shutdown


class IoThread(threading.Thread):
    """Start it, take `Work` from the inbox, `send` reports, `finish` it at the end.

    Args:
        inbox: what the main thread is to do, in order.
        on_shutdown: called when the coordinator says so; must not block.
        on_orphaned: called when the parent process is gone; does not return.
    """

    def __init__(
        self,
        settings: ExecutorSettings,
        context: zmq.Context[zmq.Socket[bytes]],
        plane: DataPlane,
        server: TensorServer,
        inbox: SimpleQueue[Work],
        on_shutdown: Callable[[], None],
        on_orphaned: Callable[[], None],
    ) -> None:
        super().__init__(name="io", daemon=True)
        self._settings = settings
        self._context = context
        self._plane = plane
        self._server = server
        self._inbox = inbox
        self._on_shutdown = on_shutdown
        self._on_orphaned = on_orphaned
        self._process = psutil.Process()
        self._outbox: deque[tuple[BatchId, list[bytes]]] = deque()
        self._running: dict[BatchId, Job] = {}
        self._deadline_s: float | None = None
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    def send(self, batch_id: BatchId, frames: list[bytes]) -> None:
        """Report a batch (from the main thread)."""
        self._outbox.append((batch_id, frames))
        self._wake()

    def finish(self) -> None:
        """Have the last reports sent and the sockets closed; returns when that is done."""
        self._deadline_s = time.monotonic() + FLUSH_S
        self._wake()
        self.join()

    def run(self) -> None:
        """The thread. A bug in here ends the process: nobody could hear of it otherwise."""
        try:
            self._serve()
        except BaseException:
            log.exception("io_thread_broken")
            os._exit(1)

    def _serve(self) -> None:
        coordinator = self._connect()
        poller = zmq.Poller()
        for source in (coordinator, self._server.socket, self._wake_reader):
            poller.register(source, zmq.POLLIN)
        if _is_parent_on(STDIN):
            poller.register(STDIN, zmq.POLLIN)
        next_beat_s = time.monotonic()
        while not self._is_finished():
            wait_s = max(0.0, next_beat_s - time.monotonic())
            ready = dict(poller.poll(math.ceil(wait_s * 1000)))
            if STDIN in ready and not os.read(STDIN, 4096):
                self._on_orphaned()
            if self._wake_reader in ready:
                os.read(self._wake_reader, 4096)
            # One message and one fetch a round: neither can hold up the other, and what is still
            # there makes the next poll return at once.
            if coordinator in ready:
                self._read(coordinator)
            if self._server.socket in ready:
                self._server.serve_one()
            self._flush(coordinator)
            if time.monotonic() >= next_beat_s:
                next_beat_s = time.monotonic() + HEARTBEAT_S
                self._beat(coordinator)
        self._server.close()
        coordinator.close(linger=int(FLUSH_S * 1000))

    def _connect(self) -> zmq.Socket[bytes]:
        coordinator = self._context.socket(zmq.DEALER)
        bound(coordinator)
        coordinator.connect(self._settings.coordinator_endpoint)
        hello = Hello(
            executor=self._settings.executor,
            incarnation=self._settings.incarnation,
            protocol_version=PROTOCOL_VERSION,
            pid=os.getpid(),
            device=self._settings.device,
            num_threads=self._settings.num_threads,
        )
        coordinator.send_multipart(encode(hello))
        return coordinator

    def _read(self, coordinator: zmq.Socket[bytes]) -> None:
        """Take in one message of the coordinator's."""
        try:
            message = decode_to_executor(coordinator.recv_multipart())
        except WireProblem as problem:
            log.warning("message_refused", extra={"reason": problem.message})
            return
        match message:
            case RunBatch():
                job = self._running[message.batch_id] = Job(message)
                self._inbox.put(job)
            case InputReady() | CancelBatch() | RecallBatches():
                self._tell_jobs(message)
            case ReleaseTensors():
                # At once, even while a batch runs: the coordinator releases only what no
                # batch under way reads, and the memory may be needed now.
                self._plane.release(message.keys)
            case DropModels():
                self._inbox.put(message)
            case Shutdown():
                self._on_shutdown()
            case _:
                assert_never(message)

    def _tell_jobs(self, message: InputReady | CancelBatch | RecallBatches) -> None:
        """Pass on what concerns batches; those that are not there were reported meanwhile."""
        match message:
            case InputReady(batch_id=batch_id):
                if batch_id in self._running:
                    self._running[batch_id].arrivals.put(message.awaited, message.value)
            case CancelBatch(batch_id=batch_id):
                if batch_id in self._running:
                    self._running[batch_id].cancelled.set()
            case RecallBatches(batch_ids=batch_ids):
                for batch_id in batch_ids:
                    if batch_id in self._running:
                        self._running[batch_id].recalled.set()
            case _:
                assert_never(message)

    def _flush(self, coordinator: zmq.Socket[bytes]) -> None:
        """Send reports; what the coordinator does not take now waits for the next round."""
        while self._outbox:
            batch_id, frames = self._outbox[0]
            try:
                coordinator.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                return
            self._outbox.popleft()
            self._running.pop(batch_id, None)

    def _beat(self, coordinator: zmq.Socket[bytes]) -> None:
        beat = Heartbeat(
            executor=self._settings.executor,
            incarnation=self._settings.incarnation,
            rss_bytes=self._process.memory_info().rss,
            held_bytes=self._plane.held_bytes,
        )
        try:
            coordinator.send_multipart(encode(beat), zmq.NOBLOCK)
        except zmq.Again:
            log.warning("heartbeat_dropped")  # the coordinator reads nothing any more

    def _is_finished(self) -> bool:
        if self._deadline_s is None:
            return False
        return not self._outbox or time.monotonic() > self._deadline_s

    def _wake(self) -> None:
        try:
            os.write(self._wake_writer, b"!")
        except BlockingIOError:
            return  # the pipe is full of wake-ups already


def _is_parent_on(descriptor: int) -> bool:
    """Whether the descriptor is a pipe or a socket, whose end of file tells of the parent's."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
