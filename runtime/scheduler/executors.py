"""Who is alive, who is idle, and what the others run. One batch at a time each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..ids import BatchId, ExecutorId
from .node_state import NodeState, ValueId
from .tensors import HeldValue


@dataclass(slots=True, eq=False)
class RunningCall:
    """A node that was sent, the very values that it was sent, and those that it still waits for."""

    state: NodeState
    inputs: dict[ValueId, HeldValue]
    awaited: list[ValueId]


@dataclass(slots=True, eq=False)
class RunningBatch:
    """What an executor was sent and has not reported.

    Args:
        is_orphaned: it was cancelled because a value that it waits for is not coming.
    """

    batch_id: BatchId
    op: str
    calls: tuple[RunningCall, ...]
    due_s: float  # when it should be reported, by the profiles
    is_cancelled: bool = False
    is_orphaned: bool = False


@dataclass(slots=True, eq=False)
class ExecutorSlot:
    """A living incarnation of an executor."""

    executor: ExecutorId
    incarnation: str
    running: RunningBatch | None = None
    is_drop_wanted: bool = False
    num_loads: int = 0

    def remaining_s(self, now_s: float) -> float:
        """Estimated seconds until it is idle; 0 when its batch is overdue."""
        return 0.0 if self.running is None else max(0.0, self.running.due_s - now_s)


@dataclass(slots=True)
class Executors:
    """The living executors, in the order in which they joined."""

    _slots: dict[ExecutorId, ExecutorSlot] = field(default_factory=dict)
    _dead: set[tuple[ExecutorId, str]] = field(default_factory=set)

    def __iter__(self) -> Iterator[ExecutorSlot]:
        return iter(self._slots.values())

    def __contains__(self, executor: ExecutorId) -> bool:
        return executor in self._slots

    def __getitem__(self, executor: ExecutorId) -> ExecutorSlot:
        return self._slots[executor]

    def alive(self) -> dict[ExecutorId, str]:
        """The living incarnation of each executor."""
        return {slot.executor: slot.incarnation for slot in self}

    def is_alive(self, executor: ExecutorId, incarnation: str) -> bool:
        """Whether just this incarnation lives."""
        return executor in self._slots and self._slots[executor].incarnation == incarnation

    def is_dead(self, executor: ExecutorId, incarnation: str) -> bool:
        """Whether this incarnation was lost: it never comes back, whatever it says."""
        return (executor, incarnation) in self._dead

    def join(self, executor: ExecutorId, incarnation: str) -> None:
        """A new incarnation is there; the old one was removed before."""
        self._slots[executor] = ExecutorSlot(executor=executor, incarnation=incarnation)

    def remove(self, executor: ExecutorId) -> ExecutorSlot:
        """The incarnation is lost; returns what it was doing."""
        slot = self._slots.pop(executor)
        self._dead.add((executor, slot.incarnation))
        return slot
