"""The coordinator's end of the ZeroMQ link to its executors: a ROUTER on ipc in a 0700 folder.

Knows which incarnations are expected and when each was last heard; decides nothing.
"""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zmq
import zmq.asyncio

from ..ids import ExecutorId
from ..protocol import PROTOCOL_VERSION, BatchDone, FromExecutor, Heartbeat, Hello, ToExecutor
from ..wire import WireProblem, bound, decode_from_executor, encode

Clock = Callable[[], float]  # monotonic seconds

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Peer:
    """A connected executor process."""

    executor: ExecutorId
    incarnation: str
    identity: bytes
    hello: Hello
    last_heard_s: float
    rss_bytes: int = 0
    held_bytes: int = 0


class ExecutorLink:
    """Receives from and sends to executors that were announced with `expect`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.folder = Path(tempfile.mkdtemp(prefix="nodeloom-"))  # mkdtemp makes it 0700
        self.endpoint = f"ipc://{self.folder}/coordinator"
        self.peers: dict[ExecutorId, Peer] = {}
        self._expected: dict[ExecutorId, str] = {}
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.LINGER, 500)
        bound(self._socket)
        self._socket.bind(self.endpoint)

    def data_endpoint(self, executor: ExecutorId, incarnation: str) -> str:
        """Where that incarnation is to serve its tensors."""
        return f"ipc://{self.folder}/data-{executor}-{incarnation}"

    def expect(self, executor: ExecutorId, incarnation: str) -> None:
        """From now on only this incarnation of the executor is listened to."""
        self._expected[executor] = incarnation

    def forget(self, executor: ExecutorId, incarnation: str) -> bool:
        """The incarnation is gone and not listened to any more. Returns: was it connected?"""
        if self._expected.get(executor) == incarnation:
            del self._expected[executor]
        peer = self.peers.get(executor)
        if peer is None or peer.incarnation != incarnation:
            return False
        del self.peers[executor]
        return True

    async def receive(self) -> Hello | BatchDone | None:
        """The next message worth acting on, or None for one that only counts as a sign of life."""
        identity, *frames = await self._socket.recv_multipart()
        try:
            message = decode_from_executor(frames)
        except WireProblem as problem:
            log.warning("message_refused", extra={"reason": problem.message})
            return None
        if self._expected.get(message.executor) != message.incarnation:
            log.warning("stranger_ignored", extra={"executor": message.executor})
            return None
        return self._note(identity, message)

    def _note(self, identity: bytes, message: FromExecutor) -> Hello | BatchDone | None:
        if isinstance(message, Hello):
            if message.protocol_version != PROTOCOL_VERSION:
                log.error("protocol_mismatch", extra={"executor": message.executor})
                return None
            self.peers[message.executor] = Peer(
                executor=message.executor,
                incarnation=message.incarnation,
                identity=identity,
                hello=message,
                last_heard_s=self._clock(),
            )
            return message
        peer = self.peers.get(message.executor)
        if peer is None:
            return None
        peer.last_heard_s = self._clock()
        if isinstance(message, Heartbeat):
            peer.rss_bytes = message.rss_bytes
            peer.held_bytes = message.held_bytes
            return None
        return message

    async def send(self, executor: ExecutorId, message: ToExecutor) -> None:
        """Send without waiting. A process that is gone or takes nothing more counts as silent.

        Raises: WireProblem: the message is too large.
        """
        frames = encode(message)
        peer = self.peers.get(executor)
        if peer is None:
            return
        try:
            await self._socket.send_multipart([peer.identity, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as problem:
            log.warning("send_failed", extra={"executor": executor, "reason": str(problem)})
            peer.last_heard_s = -math.inf

    def silent(self, limit_s: float) -> list[Peer]:
        """Executors not heard of for `limit_s`."""
        now_s = self._clock()
        return [peer for peer in self.peers.values() if now_s - peer.last_heard_s > limit_s]

    def close(self) -> None:
        """Close the socket and remove the folder."""
        self._socket.close()
        self._context.term()
        shutil.rmtree(self.folder, ignore_errors=True)
