"""Who is alive, who is idle, and what the others run: one batch at a time, or a chain of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...graph_import.handles import ModelRef, Patch
from ..ids import BatchId, ExecutorId
from .batching import shape_of
from .node_state import NodeState, ValueId
from .profiles import Shape
from .tensors import HeldValue

if TYPE_CHECKING:
    from .request_state import RequestState


@dataclass(slots=True, eq=False)
class RunningCall:
    """A node that was sent, and the very values that it was sent.

    Args:
        awaited: what it still waits for: deferred inputs that other executors make.
        chained: what earlier batches of its chain still have to make.
    """

    state: NodeState
    inputs: dict[ValueId, HeldValue]
    awaited: list[ValueId]
    chained: list[ValueId] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class RunningBatch:
    """What an executor was sent and has not reported.

    Args:
        is_announced: clients were told that its nodes run.
        is_orphaned: it was cancelled because a value that it waits for is not coming.
        is_recalled: it will not begin, unless it has begun already.
        could_part: it is in a chain only because no executor was idle that could have taken it.
    """

    batch_id: BatchId
    op: str
    model: ModelRef | None
    calls: tuple[RunningCall, ...]
    duration_s: float  # by the profiles
    due_s: float  # when it should be reported, by the profiles
    is_announced: bool = False
    is_cancelled: bool = False
    is_orphaned: bool = False
    is_recalled: bool = False
    could_part: bool = False

    @property
    def is_unwanted(self) -> bool:
        """Whether all its requests are over."""
        return all(call.state.request.ending is not None for call in self.calls)

    @property
    def shape(self) -> Shape:
        """The shapes that its calls read, as far as they are there."""
        return shape_of(self.calls[0].state, self.calls[0].inputs)


@dataclass(slots=True, eq=False)
class ExecutorSlot:
    """A living incarnation of an executor.

    Args:
        running: the batch that it runs, as far as it has reported.
        later: the rest of its chain: sent, and to be run in this order.
        is_chain_done: nothing was found that could follow; forgotten with its next report.
    """

    executor: ExecutorId
    incarnation: str
    running: RunningBatch | None = None
    later: deque[RunningBatch] = field(default_factory=deque)
    is_chain_done: bool = False
    is_drop_wanted: bool = False
    num_loads: int = 0

    def batches(self) -> list[RunningBatch]:
        """All that it was sent and has not reported, in order."""
        return [] if self.running is None else [self.running, *self.later]

    def makes(self, request: RequestState, value_id: ValueId) -> bool:
        """Whether a node that it was sent, and that is not reported, gives a request's value."""
        return any(
            call.state.request is request and call.state.node.id == value_id[0]
            for batch in self.batches()
            for call in batch.calls
        )

    def find(self, batch_id: BatchId) -> RunningBatch | None:
        """One of its batches; None: it was reported before."""
        return next((batch for batch in self.batches() if batch.batch_id == batch_id), None)

    def died_in(self, begun: BatchId | None) -> RunningBatch | None:
        """The batch under which it died; None: it had begun none that it has not reported.

        Args: begun: as in `ExecutorLost`; without word of it, the first of its batches.
        """
        return self.running if begun is None else self.find(begun)

    def take_out(self, batch: RunningBatch, now_s: float) -> None:
        """One of its batches is reported: it is not there any more, and the next one begins."""
        self.is_chain_done = False
        if batch is not self.running:
            self.later.remove(batch)
            return
        self.running = self.later.popleft() if self.later else None
        due_s = now_s
        for left in self.batches():
            due_s += left.duration_s
            left.due_s = due_s

    def remaining_s(self, now_s: float) -> float:
        """Estimated seconds until it is free for others; 0 when its batch is overdue.

        The rest of a chain does not count: it is recalled when another node wants the executor.
        """
        return 0.0 if self.running is None else max(0.0, self.running.due_s - now_s)

    def until_made_s(self, state: NodeState, now_s: float) -> float:
        """Estimated seconds until a node that was sent to it is done."""
        due_s = (b.due_s for b in self.batches() if any(c.state is state for c in b.calls))
        return max(0.0, next(due_s, now_s) - now_s)

    def planned_patches(self, model: ModelRef) -> tuple[Patch, ...] | None:
        """The patches that its batches leave on a model; None if none of them uses it."""
        for batch in reversed(self.batches()):
            if batch.model is not None and batch.model.key == model.key:
                return batch.model.patches
        return None


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
