"""Values: who holds their tensors, who still reads them, when executors may forget them.

A `put` of an executor gives every tensor an id of its own, so no two values share a tensor.
Scalars and tensors that travel inside their ref live in no executor: nothing is released for them.
A tensor with a checkpoint is in a file as well, which outlives its maker. The maker deletes it when
it is told to forget the tensor; who deletes it when the maker is dead is our business.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ids import ExecutorId
from ..protocol import ScalarValue, TensorKey, TensorRef, ValueRef
from .actions import DropCheckpoints, Release, SweepCheckpoints

Incarnation = tuple[ExecutorId, str]


@dataclass(slots=True, eq=False)
class HeldValue:
    """What a node gave at one port.

    Args:
        keys: its tensors that live in executors.
        maker: the executor (and its incarnation) that made it.
        checkpoints: the files of those tensors that have one.
        holders: the executors (and their incarnation) that made or were sent it.
        num_readers: nodes that read it and are not done.
        num_running: calls in running batches that were sent it.
        is_retired: nobody will be sent it again.
    """

    ref: ValueRef
    keys: tuple[TensorKey, ...]
    num_bytes: int
    maker: Incarnation
    checkpoints: tuple[str, ...]
    holders: dict[ExecutorId, str]
    num_readers: int = 0
    num_running: int = 0
    is_retired: bool = False

    @property
    def is_scalar(self) -> bool:
        """Whether it is an INT, FLOAT, STRING or BOOLEAN."""
        return isinstance(self.ref, ScalarValue)

    def dies_with(self, executor: ExecutorId, incarnation: str) -> bool:
        """Whether this incarnation of an executor has a tensor of it that is in no file."""
        return self.maker == (executor, incarnation) and len(self.checkpoints) < len(self.keys)


def hold(ref: ValueRef, executor: ExecutorId, incarnation: str) -> HeldValue:
    """A value that `executor` has just reported."""
    stored = [] if isinstance(ref, ScalarValue) else [t for t in ref.tensors if t.inline is None]
    return HeldValue(
        ref=ref,
        keys=tuple(tensor.key for tensor in stored),
        num_bytes=sum(map(_num_bytes, stored)),
        maker=(executor, incarnation),
        checkpoints=tuple(t.checkpoint for t in stored if t.checkpoint is not None),
        holders={executor: incarnation},
    )


def _num_bytes(ref: TensorRef) -> int:
    """Size by shape and dtype name (`float32`, `bool`, `float8_e4m3fn`)."""
    bits = re.search(r"\d+", ref.dtype)
    return math.prod(ref.shape) * (int(bits.group()) // 8 if bits else 1)


@dataclass(slots=True)
class TensorBook:
    """Collects what may be forgotten, until the end of the event. Knows whose files are needed."""

    _releases: dict[Incarnation, list[TensorKey]] = field(default_factory=dict)
    _needed: dict[Incarnation, set[str]] = field(default_factory=dict)
    _dropped: dict[Incarnation, list[str]] = field(default_factory=dict)
    _sweeps: list[SweepCheckpoints] = field(default_factory=list)

    def hold(self, ref: ValueRef, executor: ExecutorId, incarnation: str) -> HeldValue:
        """A value that `executor` has just reported; it must be retired some day."""
        value = hold(ref, executor, incarnation)
        if value.checkpoints:
            self._needed.setdefault(value.maker, set()).update(value.checkpoints)
        return value

    def needed_checkpoints(self) -> frozenset[str]:
        """The files of all values that may still be read."""
        return frozenset().union(*self._needed.values())

    def bury(self, executor: ExecutorId, incarnation: str) -> None:
        """This incarnation is lost. It may have left files that it did not tell of, or that it was
        about to delete."""
        self._dropped.pop((executor, incarnation), None)
        kept = tuple(sorted(self._needed.get((executor, incarnation), ())))
        self._sweeps.append(SweepCheckpoints(executor=executor, incarnation=incarnation, kept=kept))

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

    def flush(
        self, alive: Mapping[ExecutorId, str]
    ) -> list[Release | SweepCheckpoints | DropCheckpoints]:
        """The releases of this event; incarnations that are gone need none, but their files go."""
        actions: list[Release | SweepCheckpoints | DropCheckpoints] = [
            Release(executor=executor, keys=tuple(keys))
            for (executor, incarnation), keys in self._releases.items()
            if alive.get(executor) == incarnation
        ]
        actions += self._sweeps
        actions += [
            DropCheckpoints(names=tuple(names))
            for (executor, incarnation), names in self._dropped.items()
            if alive.get(executor) != incarnation
        ]
        for collected in (self._releases, self._sweeps, self._dropped):
            collected.clear()
        return actions

    def _release_if_unread(self, value: HeldValue) -> None:
        if value.num_running or not value.keys:
            return
        for holder in value.holders.items():
            self._releases.setdefault(holder, []).extend(value.keys)
        if value.checkpoints:
            self._needed[value.maker].difference_update(value.checkpoints)
            if not self._needed[value.maker]:
                del self._needed[value.maker]
            self._dropped.setdefault(value.maker, []).extend(value.checkpoints)
