"""Values: who holds their tensors, who still reads them, when executors may forget them.

A `put` of an executor gives every tensor an id of its own, so no two values share a tensor.
Scalars and tensors that travel inside their ref live in no executor: nothing is released for them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..ids import ExecutorId
from ..protocol import ScalarValue, TensorKey, TensorRef, ValueRef
from .actions import Release


@dataclass(slots=True, eq=False)
class HeldValue:
    """What a node gave at one port.

    Args:
        keys: its tensors that live in executors.
        holders: the executors (and their incarnation) that made or were sent it.
        num_readers: nodes that read it and are not done.
        num_running: calls in running batches that were sent it.
        is_retired: nobody will be sent it again.
    """

    ref: ValueRef
    keys: tuple[TensorKey, ...]
    num_bytes: int
    holders: dict[ExecutorId, str]
    num_readers: int = 0
    num_running: int = 0
    is_retired: bool = False

    @property
    def is_scalar(self) -> bool:
        """Whether it is an INT, FLOAT, STRING or BOOLEAN."""
        return isinstance(self.ref, ScalarValue)

    def lived_in(self, executor: ExecutorId, incarnation: str) -> bool:
        """Whether one of its tensors is served by this incarnation of an executor."""
        return any(key.executor == executor and key.incarnation == incarnation for key in self.keys)


def hold(ref: ValueRef, executor: ExecutorId, incarnation: str) -> HeldValue:
    """A value that `executor` has just reported."""
    stored = [] if isinstance(ref, ScalarValue) else [t for t in ref.tensors if t.inline is None]
    return HeldValue(
        ref=ref,
        keys=tuple(tensor.key for tensor in stored),
        num_bytes=sum(map(_num_bytes, stored)),
        holders={executor: incarnation},
    )


def _num_bytes(ref: TensorRef) -> int:
    """Size by shape and dtype name (`float32`, `bool`, `float8_e4m3fn`)."""
    bits = re.search(r"\d+", ref.dtype)
    return math.prod(ref.shape) * (int(bits.group()) // 8 if bits else 1)


@dataclass(slots=True)
class TensorBook:
    """Collects what executors may forget, until the end of the event."""

    _releases: dict[tuple[ExecutorId, str], list[TensorKey]] = field(default_factory=dict)

    def send(self, value: HeldValue, executor: ExecutorId, incarnation: str) -> None:
        """A call that reads the value goes to `executor`, which may keep a copy."""
        value.holders[executor] = incarnation
        value.num_running += 1

    def stop_reading(self, value: HeldValue) -> None:
        """The call was reported, or its executor is lost."""
        value.num_running -= 1
        if value.is_retired:
            self._release_if_unread(value)

    def retire(self, value: HeldValue) -> None:
        """Nobody will be sent the value again; it is released once no running batch reads it."""
        value.is_retired = True
        self._release_if_unread(value)

    def flush(self, alive: Mapping[ExecutorId, str]) -> list[Release]:
        """The releases of this event; incarnations that are gone need none."""
        actions = [
            Release(executor=executor, keys=tuple(keys))
            for (executor, incarnation), keys in self._releases.items()
            if alive.get(executor) == incarnation
        ]
        self._releases.clear()
        return actions

    def _release_if_unread(self, value: HeldValue) -> None:
        if value.num_running or not value.keys:
            return
        for holder in value.holders.items():
            self._releases.setdefault(holder, []).extend(value.keys)


def discard(book: TensorBook, refs: Iterable[ValueRef], executor: ExecutorId, inc: str) -> None:
    """Release the results of a call that nobody waits for any more."""
    for ref in refs:
        book.retire(hold(ref, executor, inc))
