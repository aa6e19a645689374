"""Which executor a group's next nodes go to: fetch + load + switch + infer, and waiting counts too.

For a node, an executor's score is the time until the node would be done there: what the executor
still has to do, then fetching inputs that it doesn't hold, then loading the model if it isn't
there, or switching its patches if they are others. Running the call costs the same everywhere and
is left out.

Two rules keep it work-conserving. An idle executor that has the model with the node's patches (or a
node that needs no model) is used at once, whatever the profiles say. And waiting is only for an
executor that is busy and has the model, or also the patches where an idle one would have to switch:
when it reports, it is idle and the first rule holds, so nothing waits for ever.
Source: LegoDiffusion (arXiv 2604.08123), Algorithm 1, lines 13-17; waiting is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...graph_import.handles import ModelKey, ModelRef, Patch
from .batch_costs import BatchCosts
from .batching import ReadyGroup, gather, shape_of
from .executors import Executors, ExecutorSlot
from .node_state import NodeState
from .profiles import Profiles, Shape
from .replicas import Replicas
from .shares import Shares
from .switching import PatchTurns
from .tensors import HeldValue

FETCH_BYTES_PER_S: Final = 1e9
FETCH_START_S: Final = 0.001  # per value


def fetch_s(state: NodeState, slot: ExecutorSlot) -> float:
    """Estimated seconds to bring what is there of a node's inputs to an executor."""
    values = state.request.values
    there = (values[value_id] for value_id in state.inputs if value_id in values)
    return sum(_fetch_value_s(value, slot) for value in there)


def _fetch_value_s(value: HeldValue, slot: ExecutorSlot) -> float:
    if not value.keys or value.holders.get(slot.executor) == slot.incarnation:
        return 0.0
    return FETCH_START_S + value.num_bytes / FETCH_BYTES_PER_S


@dataclass(slots=True)
class Placer:
    """Decides for one group of ready nodes at a time."""

    executors: Executors
    replicas: Replicas
    profiles: Profiles
    turns: PatchTurns
    shares: Shares

    def place(
        self, group: ReadyGroup, idle: Sequence[ExecutorSlot], now_s: float
    ) -> tuple[ExecutorSlot, list[NodeState]] | None:
        """The next batch of the group and where to send it, or None: all its nodes wait.

        `idle` is not empty. In strict mode a batch is one call (`Shares.max_batch` is 1) and may go
        anywhere: results are the same wherever it runs.
        """
        placed = self._place(group, idle, now_s)
        if placed is not None:
            self.turns.note(group, placed[1])
        return placed

    def _place(
        self, group: ReadyGroup, idle: Sequence[ExecutorSlot], now_s: float
    ) -> tuple[ExecutorSlot, list[NodeState]] | None:
        if group.model is None:
            return self._to_nearest(group, idle)
        key = group.model.key
        standing_by = [slot for slot in idle if self.replicas.has(slot.executor, key)]
        if standing_by:
            is_better = self._is_better_off_waiting(group.nodes[0], group.model, standing_by, now_s)
            return None if is_better else self._to_nearest(group, standing_by)
        first = self._first_to_load(group, key, now_s)
        if first is None:
            return None
        state = group.nodes[first]
        slot = min(
            idle,
            key=lambda slot: (fetch_s(state, slot), self.replicas.num_models(slot.executor)),
        )
        return slot, self._gather(group, first, slot, 1)

    def _is_better_off_waiting(
        self, head: NodeState, model: ModelRef, idle: Sequence[ExecutorSlot], now_s: float
    ) -> bool:
        """Whether a busy executor has the patches and is free before an idle one has them on."""
        if any(self.patches(slot, model) == model.patches for slot in idle):
            return False
        return any(
            _wait_s(head, slot, now_s) < self.profiles.switch(model.key).seconds_s
            for slot in self.executors
            if slot.running is not None
            and self.replicas.has(slot.executor, model.key)
            and self.patches(slot, model) == model.patches
        )

    def _to_nearest(
        self, group: ReadyGroup, standing_by: Sequence[ExecutorSlot]
    ) -> tuple[ExecutorSlot, list[NodeState]]:
        """Start at once where the head's inputs and patches are soonest: nothing must be loaded.

        Executors whose patches others want don't count among those that share the group's nodes.
        """
        head, model = group.nodes[0], group.model
        if model is None:
            slot = min(standing_by, key=lambda slot: fetch_s(head, slot))
            return slot, self._gather(group, 0, slot, len(standing_by))
        slot = min(
            standing_by, key=lambda slot: fetch_s(head, slot) + self.turns.switch_s(model, slot)
        )
        num_free = sum(not self.turns.is_wanted(model, slot) for slot in standing_by)
        return slot, self._gather(group, 0, slot, num_free)

    def duration_s(self, states: Sequence[NodeState], slot: ExecutorSlot) -> float:
        """Estimated seconds that a batch of nodes takes on an executor."""
        head = states[0]
        run_s = self.costs(head, self.shape(head)).seconds_s(len(states))
        if run_s is None:
            run_s = sum(state.profile.seconds_s for state in states)
        duration_s = run_s + sum(fetch_s(state, slot) for state in states)
        model = states[0].node.model
        if model is not None:
            if not self.replicas.has(slot.executor, model.key):
                duration_s += self.profiles.load(model.key).seconds_s
            if self.patches(slot, model) != model.patches:
                duration_s += self.profiles.switch(model.key).seconds_s
        return duration_s

    def patches(self, slot: ExecutorSlot, model: ModelRef) -> tuple[Patch, ...]:
        """The patches that a model has on an executor once it has run what it was sent."""
        planned = slot.planned_patches(model)
        return self.replicas.patches(slot.executor, model.key) if planned is None else planned

    def shape(self, state: NodeState) -> Shape:
        """The shapes that a ready node reads."""
        return shape_of(state, state.request.values)

    def costs(self, state: NodeState, shape: Shape) -> BatchCosts:
        """What batches of calls like a node's take."""
        model = state.node.model
        return self.profiles.batches(state.node.op, None if model is None else model.key, shape)

    def may_join(self, num_calls: int, shape: Shape, other: NodeState) -> bool:
        """Whether a ready node should make such a batch of its op and model larger by one."""
        if other.num_deaths:
            return False
        if self.shape(other) != shape:
            return False
        if self.costs(other, shape).best_size(num_calls + 1) <= num_calls:
            return False
        return num_calls < self.shares.largest(other)

    def _first_to_load(self, group: ReadyGroup, key: ModelKey, now_s: float) -> int | None:
        """Index of the first node that is better off where the model must be loaded first.

        The nodes before it are done sooner by waiting for a busy executor that has the model. The
        further behind a node is, the longer it waits: requests before it will come back for the
        executor with all their open work, so that work is waited for, shared by those executors.
        """
        holders = [
            slot
            for slot in self.executors
            if slot.running is not None and self.replicas.has(slot.executor, key)
        ]
        if not holders:
            return 0
        load_s = self.profiles.load(key).seconds_s
        wait_s = min(_wait_s(group.nodes[0], slot, now_s) for slot in holders)
        for index, state in enumerate(group.nodes):
            if index:
                wait_s += _work_s(group.nodes[index - 1], state) / len(holders)
            if wait_s > load_s:
                return index
        return None

    def _gather(
        self, group: ReadyGroup, first: int, slot: ExecutorSlot, num_standing_by: int
    ) -> list[NodeState]:
        head = group.nodes[first]
        return gather(
            group,
            first,
            max_batch=self.shares.largest(head),
            costs=self.costs(head, self.shape(head)),
            may_go_along=self.turns.may_go_along(group),
            num_standing_by=num_standing_by,
            cost_here=lambda state: fetch_s(state, slot),
        )


def _wait_s(state: NodeState, slot: ExecutorSlot, now_s: float) -> float:
    """Until a busy executor could start on a node: its batch, and what requests before it bring."""
    assert slot.running is not None
    before = [
        call.state
        for call in slot.running.calls
        if call.state.order < state.order and call.state.request is not state.request
    ]
    work_s = sum(request.work.seconds_s for request in {s.request: None for s in before})
    work_s -= sum(state.profile.seconds_s for state in before)  # what runs is open work too
    return slot.remaining_s(now_s) + fetch_s(state, slot) + max(0.0, work_s)


def _work_s(before: NodeState, state: NodeState) -> float:
    """What `state` waits for behind `before`: its call, or all that another request still does."""
    if before.request is state.request:
        return before.profile.seconds_s
    return before.request.work.seconds_s
