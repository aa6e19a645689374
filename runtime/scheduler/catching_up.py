"""Later requests that catch up with an earlier one, where steps of both together are cheaper.

Order is by request, so a request that comes later would never be at the same model as one that is
being sampled. Where batches are measured to pay, what it has to do before its own sampling goes
first, unless that takes longer than sharing the steps saves. What may catch up is bounded by the
size of batch that pays; nothing else of the order changes.
Source: continuous batching as in LegoDiffusion (arXiv 2604.08123), section 5.1; the rule is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .batching import ReadyGroup, ReadyQueue
from .executors import Executors
from .node_state import NodeState
from .placement import Placer
from .profiles import Shape
from .request_state import Loop

GUESSED_GAIN: Final = 0.05  # of a call's seconds, where a batch of that size is a trial


@dataclass(slots=True)
class CatchingUp:
    """Finds whom the nodes of a request may catch up with."""

    ready: ReadyQueue
    executors: Executors
    placer: Placer

    def leader(self, group: ReadyGroup) -> NodeState | None:
        """The node of an earlier request that the head of `group` may go before, if any."""
        head = group.nodes[0]
        loop = head.request.loop
        if self.placer.max_batch == 1 or loop is None or head.request.has_begun(loop):
            return None
        if (group.op, group.model) == (loop.op, loop.model):
            return None
        found = self._sampled_now(loop, head)
        if found is None:
            return None
        leader, num_calls, shape = found
        return leader if self._saves(head, loop, leader, num_calls, shape) else None

    def _sampled_now(self, loop: Loop, head: NodeState) -> tuple[NodeState, int, Shape] | None:
        """The foremost earlier node in the same loop, how many go with it, and what they read."""
        found: list[tuple[NodeState, int, Shape]] = []
        for slot in self.executors:
            batch = slot.running
            if batch is not None and (batch.op, batch.model) == (loop.op, loop.model):
                first = min((call.state for call in batch.calls), key=lambda state: state.order)
                found.append((first, len(batch.calls), batch.shape))
        waiting = self.ready.group(loop.op, loop.model)
        if waiting is not None:
            first = waiting.nodes[0]
            found.append((first, len(waiting.nodes), self.placer.shape(first)))
        found = [
            (first, num_calls, shape)
            for first, num_calls, shape in found
            if first.order < head.order and first.request is not head.request
        ]
        return min(found, key=lambda item: item[0].order, default=None)

    def _saves(
        self, head: NodeState, loop: Loop, leader: NodeState, num_calls: int, shape: Shape
    ) -> bool:
        """Whether the steps that both have left save more than doing `head` first takes."""
        size = num_calls + 1
        costs = self.placer.costs(leader, shape)
        if size > self.placer.max_batch or costs.best_size(size) < size:
            return False
        step_s = leader.profile.seconds_s
        gain_s = costs.gain_s(size) or GUESSED_GAIN * step_s
        num_steps = min(state.request.work.count(leader.profile) for state in (head, leader))
        return gain_s * size * num_steps > head.profile.seconds_s
