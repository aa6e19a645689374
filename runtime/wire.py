"""Messages as two ZeroMQ frames: a header with the protocol's version, and the msgpack body.

Used at both ends of the link between coordinator (ROUTER) and executors (DEALER). What the
messages mean stands in `protocol.py`. No torch here: the coordinator imports this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
import zmq

from ..graph_import.errors import NodeloomError
from .protocol import PROTOCOL_VERSION, FromExecutor, Message, ToExecutor

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
HEADER: Final = b"nodeloom/%d" % PROTOCOL_VERSION

_M = TypeVar("_M", bound=Message)
_ENCODER: Final = msgspec.msgpack.Encoder()
_TO_EXECUTOR: Final[msgspec.msgpack.Decoder[ToExecutor]] = msgspec.msgpack.Decoder(ToExecutor)
_FROM_EXECUTOR: Final[msgspec.msgpack.Decoder[FromExecutor]] = msgspec.msgpack.Decoder(FromExecutor)


class WireProblem(NodeloomError):
    """A message can't be read or sent: malformed, too large, or of another protocol version."""

    code = "wire_problem"


def encode(message: Message) -> list[bytes]:
    """The frames of `message`, without a routing id. Raises: WireProblem: it is too large."""
    body = _ENCODER.encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise WireProblem(
            f"a {type(message).__name__} of {len(body)} bytes exceeds {MAX_MESSAGE_BYTES}",
            num_bytes=len(body),
        )
    return [HEADER, body]


def decode_to_executor(frames: Sequence[bytes]) -> ToExecutor:
    """What the coordinator sent. Raises: WireProblem."""
    return _decode(_TO_EXECUTOR, frames)


def decode_from_executor(frames: Sequence[bytes]) -> FromExecutor:
    """What an executor sent; `frames` without the routing id. Raises: WireProblem."""
    return _decode(_FROM_EXECUTOR, frames)


def bound(socket: zmq.Socket[Any]) -> None:
    """Have the socket refuse larger frames unread; call it before bind or connect."""
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)


def _decode(decoder: msgspec.msgpack.Decoder[_M], frames: Sequence[bytes]) -> _M:
    if len(frames) != 2:
        raise WireProblem(f"a message has 2 frames, not {len(frames)}")
    header, body = frames
    if header != HEADER:
        # Told apart from a malformed body: another version's structs need not decode at all.
        raise WireProblem(f"the peer speaks {header[:32]!r}, not {HEADER!r}")
    if len(body) > MAX_MESSAGE_BYTES:
        raise WireProblem(f"a message of {len(body)} bytes exceeds {MAX_MESSAGE_BYTES}")
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise WireProblem(f"malformed message: {problem}") from problem
