"""Later requests that catch up with an earlier one, where steps of both together are cheaper.

Order is by request, so a request that comes later would never be at the same model as one that is
being sampled. Where batches are measured to pay, what it has to do before its own sampling goes
first. That work is no more than it was, only the earlier request waits for it: so it must be short
beside what that one has still to sample. How many may catch up is bounded by the size of batch that
pays; nothing else of the order changes.
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

MAX_DELAY: Final = 0.5  # of the sampling that both share, by each node that goes first


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
        num_steps = min(state.request.work.count(leader.profile) for state in (head, leader))
        if head.profile.seconds_s > MAX_DELAY * num_steps * leader.profile.seconds_s:
            return None
        return leader if self._pays(leader, num_calls + 1, shape) else None

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

    def _pays(self, leader: NodeState, size: int, shape: Shape) -> bool:
        if size > self.placer.max_batch:
            return False
        return self.placer.costs(leader, shape).best_size(size) == size
