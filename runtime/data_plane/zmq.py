"""The transport that always works: the consuming executor fetches from the producing one.

The producer's I/O thread answers on a ROUTER socket; the consumer asks on a DEALER socket, chunk by
chunk with a few chunks under way, and copies them into a fresh aligned tensor. Answers are sent
from the tensor's own memory, without a copy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import torch
import zmq

from ..errors import InputsLost
from ..protocol import TensorKey, TensorRef
from .layout import allocate, as_buffer, flat_bytes, num_bytes
from .local import lost

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 16 * 1024 * 1024
CHUNKS_UNDER_WAY: Final = 2  # one is copied here while the next one travels
MAX_REQUEST_BYTES: Final = 4096
FETCH_TIMEOUT_S: Final = 10.0

# A peer that was there when its ref was made and refuses or drops the connection now is dead. The
# sockets don't reconnect, so the first of these is final.
_DEATH_EVENTS: Final = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED


class PeerUnreachable(InputsLost):
    """The tensor's holder is dead or hangs: all that it holds is lost."""


class FetchChunk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consumer -> producer: `num_bytes` of a tensor's data from `offset_bytes` on."""

    key: TensorKey
    offset_bytes: int
    num_bytes: int


class Chunk(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Producer -> consumer: announces the frame behind it; `total_bytes` is the whole tensor's."""

    offset_bytes: int
    total_bytes: int


class Gone(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Producer -> consumer: no such tensor here; an empty frame follows."""


_REQUESTS: Final = msgspec.msgpack.Decoder(FetchChunk)
_HEADERS: Final[msgspec.msgpack.Decoder[Chunk | Gone]] = msgspec.msgpack.Decoder(Chunk | Gone)
_ENCODER: Final = msgspec.msgpack.Encoder()


class TensorServer:
    """The producer's end. Bound, polled and closed by the I/O thread."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        find: Callable[[TensorKey], torch.Tensor | None],
    ) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(endpoint)
        self._find = find

    def serve_one(self) -> None:
        """Answer the next request."""
        identity, *frames = self.socket.recv_multipart()
        try:
            (body,) = frames
            request = _REQUESTS.decode(body)
            header, data = self._answer(request)
        except (ValueError, msgspec.DecodeError) as problem:
            log.warning("fetch_refused", extra={"reason": str(problem)})
            return
        # ROUTER drops what it can't deliver: a consumer that died meanwhile is no error here.
        self.socket.send_multipart([identity, _ENCODER.encode(header)], zmq.SNDMORE)
        self.socket.send(data, copy=False)

    def close(self) -> None:
        """Stop serving; chunks under way are dropped."""
        self.socket.close()

    def _answer(self, request: FetchChunk) -> tuple[Chunk | Gone, memoryview]:
        tensor = self._find(request.key)
        if tensor is None:
            return Gone(), memoryview(b"")
        flat = flat_bytes(tensor)
        total, start = len(flat), request.offset_bytes
        if not (0 <= start < total and 0 < request.num_bytes <= CHUNK_BYTES):
            raise ValueError(f"chunk {start}+{request.num_bytes} of {total} bytes")
        part = flat[start : start + request.num_bytes]
        return Chunk(offset_bytes=start, total_bytes=total), as_buffer(part)


class TensorFetcher:
    """The consumer's end: one connection per producer, for any thread, one fetch at a time."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        device: str = "cpu",
        timeout_s: float = FETCH_TIMEOUT_S,
    ) -> None:
        self._context = context
        self._device = device
        self._timeout_s = timeout_s
        self._channels: dict[str, _Channel] = {}
        self._given_up: dict[str, float] = {}  # endpoint -> when it may be asked again
        self._lock = threading.Lock()

    def fetch(self, ref: TensorRef) -> torch.Tensor:
        """A copy of the tensor.

        Raises:
            PeerUnreachable: nobody answers at its endpoint, or sent nothing for `timeout_s`; it is
                then not asked again for as long, so that many tensors don't wait one by one.
            InputsLost: its holder does not have it (any more), or has something else.
        """
        with self._lock:
            if self._given_up.get(ref.endpoint, 0.0) > time.monotonic():
                raise _unreachable(ref, "its executor did not answer a moment ago")
            try:
                tensor = self._channel(ref.endpoint).fetch(ref, self._timeout_s)
            except InputsLost as problem:
                # Answers to chunks that were asked for may still come: they die with the socket.
                self._channels.pop(ref.endpoint).close()
                if isinstance(problem, PeerUnreachable):
                    self._give_up(ref.endpoint)
                raise
            except (ValueError, zmq.ZMQError) as problem:
                raise lost(ref, f"the ref makes no sense: {problem}") from problem
        return tensor.to(self._device)

    def close(self) -> None:
        """Close all connections; no fetch may be under way."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def _give_up(self, endpoint: str) -> None:
        now_s = time.monotonic()
        self._given_up = {peer: at_s for peer, at_s in self._given_up.items() if at_s > now_s}
        self._given_up[endpoint] = now_s + self._timeout_s

    def _channel(self, endpoint: str) -> _Channel:
        """The living connection to `endpoint`; a new one also buries those of dead executors."""
        channel = self._channels.get(endpoint)
        if channel is None or channel.is_dead():
            for other, old in list(self._channels.items()):
                if old.is_dead():
                    old.close()
                    del self._channels[other]
            channel = self._channels[endpoint] = _Channel(self._context, endpoint)
        return channel


class _Channel:
    """A connection to one producer."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, CHUNK_BYTES)
        self._monitor = self._socket.get_monitor_socket(_DEATH_EVENTS)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        self._socket.connect(endpoint)

    def is_dead(self) -> bool:
        """Whether the peer was seen to go; the event stays unread, so this stays true."""
        return bool(self._monitor.poll(0))

    def fetch(self, ref: TensorRef, timeout_s: float) -> torch.Tensor:
        """The tensor in host memory; see `TensorFetcher.fetch`."""
        total = num_bytes(ref.shape, ref.dtype)
        asked = self._ask(ref, 0, total)
        received = 0
        flat = tensor = None
        while received < total:
            if asked < total and asked - received < CHUNKS_UNDER_WAY * CHUNK_BYTES:
                asked = self._ask(ref, asked, total)
                continue
            header, data = self._receive(ref, timeout_s)
            expected = Chunk(offset_bytes=received, total_bytes=total)
            if header != expected or len(data) != min(CHUNK_BYTES, total - received):
                raise lost(ref, f"its holder sent {len(data)} bytes as {header}, not {expected}")
            if tensor is None or flat is None:  # made only now: the size is confirmed
                tensor = allocate(ref.shape, ref.dtype)
                flat = flat_bytes(tensor).numpy()
            flat[received : received + len(data)] = data
            received += len(data)
        if tensor is None:
            raise lost(ref, "an empty tensor travels inside its ref")
        return tensor

    def close(self) -> None:
        """Close the connection."""
        self._socket.disable_monitor()
        self._monitor.close()
        self._socket.close()

    def _ask(self, ref: TensorRef, offset: int, total: int) -> int:
        """Request the chunk at `offset`; returns where it ends."""
        size = min(CHUNK_BYTES, total - offset)
        request = FetchChunk(key=ref.key, offset_bytes=offset, num_bytes=size)
        try:
            self._socket.send(_ENCODER.encode(request), zmq.NOBLOCK)
        except zmq.Again as problem:
            raise _unreachable(ref, "its executor is gone") from problem
        return offset + size

    def _receive(self, ref: TensorRef, timeout_s: float) -> tuple[Chunk, npt.NDArray[np.uint8]]:
        ready = dict(self._poller.poll(int(timeout_s * 1000)))
        if not ready:
            raise _unreachable(ref, f"its executor sent nothing for {timeout_s:g} s")
        if self._socket not in ready:
            raise _unreachable(ref, "its executor is gone")
        frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        try:
            head, data = frames
            header = _HEADERS.decode(head.buffer)
        except (ValueError, msgspec.DecodeError) as problem:
            raise _unreachable(ref, f"its executor answered nonsense: {problem}") from problem
        if isinstance(header, Gone):
            raise lost(ref, "its holder does not have it")
        return header, np.frombuffer(data.buffer, dtype=np.uint8)


def _unreachable(ref: TensorRef, reason: str) -> PeerUnreachable:
    problem = lost(ref, reason)
    return PeerUnreachable(problem.message, **problem.details)
