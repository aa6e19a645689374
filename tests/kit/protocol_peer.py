"""An executor's end of the wire, played by a test: it speaks the protocol and runs nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import TracebackType

import zmq
import zmq.asyncio
from nodeloom.runtime.coordinator.service import Coordinator
from nodeloom.runtime.ids import ExecutorId
from nodeloom.runtime.protocol import (
    PROTOCOL_VERSION,
    BatchDone,
    CallDone,
    Hello,
    Message,
    RunBatch,
    ScalarValue,
)
from nodeloom.runtime.wire import decode_to_executor, encode

LIMIT_S = 20.0


class ProtocolPeer:
    """Says hello as `name`; with `answers` it reports every batch at once, all outputs being 3."""

    def __init__(self, coordinator: Coordinator, name: str, *, answers: bool = True) -> None:
        self.executor = ExecutorId(name)
        self.incarnation = "first"
        self.heard: list[Message] = []
        self._answers = answers
        self._changed = asyncio.Condition()
        coordinator.expect_executor(self.executor, self.incarnation)
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.connect(coordinator.executor_endpoint)
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ProtocolPeer:
        hello = Hello(
            executor=self.executor,
            incarnation=self.incarnation,
            protocol_version=PROTOCOL_VERSION,
            pid=1,
            device="cpu",
            num_threads=1,
        )
        await self._socket.send_multipart(encode(hello))
        self._reader = asyncio.get_running_loop().create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._reader is not None
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        self._socket.close(linger=0)
        self._context.term()

    async def report(self, batch: RunBatch) -> None:
        """Report a batch as done."""
        done = tuple(
            CallDone(outputs=(ScalarValue(value=3),) * call.num_outputs, ui=None, preview=None)
            for call in batch.calls
        )
        report = BatchDone(
            executor=self.executor,
            incarnation=self.incarnation,
            batch_id=batch.batch_id,
            results=done,
            resident=(),
            loaded=(),
            run_s=0.01,
        )
        await self._socket.send_multipart(encode(report))

    async def until(self, condition: Callable[[list[Message]], bool]) -> None:
        """Wait until what was heard satisfies the condition."""
        async with asyncio.timeout(LIMIT_S), self._changed:
            await self._changed.wait_for(lambda: condition(self.heard))

    def batches(self) -> list[RunBatch]:
        """The batches that were sent."""
        return [message for message in self.heard if isinstance(message, RunBatch)]

    async def _read(self) -> None:
        while True:
            message = decode_to_executor(await self._socket.recv_multipart())
            async with self._changed:
                self.heard.append(message)
                self._changed.notify_all()
            if self._answers and isinstance(message, RunBatch):
                await self.report(message)


@contextlib.asynccontextmanager
async def joined(
    coordinator: Coordinator, name: str = "e0", *, answers: bool = True
) -> AsyncIterator[ProtocolPeer]:
    """A peer that the coordinator knows of."""
    async with ProtocolPeer(coordinator, name, answers=answers) as peer:
        async with asyncio.timeout(LIMIT_S):
            while name not in {view.id for view in coordinator.executors()}:
                await asyncio.sleep(0.01)
        yield peer
