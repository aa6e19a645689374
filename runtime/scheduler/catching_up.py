"""Later requests that catch up with an earlier one, where steps of both together are cheaper.

Order is by request, so a request that comes later would never be at the same model as one that is
being sampled. Where batches are measured to pay, what it has to do before its own sampling goes
first. That work is no more than it was, only the earlier request waits for it: so it must be short
beside what that one has still to sample. How many may catch up is bounded by the size of batch that
pays; nothing else of the order changes.
Source: continuous batching as in LegoDiffusion (arXiv 2604.08123), section 5.1; the rule is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import Final

from .batching import ReadyGroup, ReadyQueue
from .executors import Executors
from .loops import Loop, LoopKind
from .node_state import NodeState, Order
from .placement import Placer
from .profiles import Shape
from .request_state import RequestState

LOOK_AT: Final = 32  # foremost nodes of each group
MAX_DELAY: Final = 0.5  # of the sampling that both share, by each node that goes first


Leaders = dict[LoopKind, RequestState | None]  # as found so far, for one look at the queue


@dataclass(slots=True)
class CatchingUp:
    """Finds the nodes that may go before their turn, and whose turn they get."""

    ready: ReadyQueue
    executors: Executors
    placer: Placer

    def ahead(self, group: ReadyGroup, leaders: Leaders) -> tuple[Order, ReadyGroup] | None:
        """The part of a group that may go before an earlier request's nodes, and its turn."""
        if self.placer.shares.max_batch == 1:
            return None
        found: dict[Order, list[NodeState]] = {}
        for state in islice(group.nodes, LOOK_AT):
            loop = state.request.loop
            if loop is None:
                continue
            if loop.kind not in leaders:
                leaders[loop.kind] = self._leader(loop.kind)
            leader = leaders[loop.kind]
            if leader is not None and _may_follow(state, loop, leader):
                found.setdefault(leader.turn, []).append(state)
        if not found:
            return None
        turn = min(found)
        return turn, ReadyGroup(group.op, group.model, found[turn])

    def _leader(self, kind: LoopKind) -> RequestState | None:
        """The foremost request that is in a loop or about to begin it, if one more should join."""
        found = dict(kind.inside)
        waiting = self.ready.group(kind.op, kind.model)
        if waiting is not None:
            found |= {s.request: self.placer.shape(s) for s in islice(waiting.nodes, LOOK_AT)}
        if not found:
            return None
        leader = min(found, key=lambda request: request.turn)
        return leader if self._pays(kind, len(found) + 1, found[leader]) else None

    def _pays(self, kind: LoopKind, num_requests: int, shape: Shape) -> bool:
        """Whether so many in a loop are cheaper than one less, with the executors that it has."""
        replicas = self.placer.replicas
        num_executors = sum(
            replicas.has(slot.executor, kind.model.key)
            and self.placer.patches(slot, kind.model) == kind.model.patches
            for slot in self.executors
        )
        size = math.ceil(num_requests / max(1, num_executors))
        costs = self.placer.profiles.batches(kind.op, kind.model.key, shape)
        return (
            size <= self.placer.shares.largest_in_loop(kind.model) and costs.best_size(size) == size
        )


def _may_follow(state: NodeState, loop: Loop, leader: RequestState) -> bool:
    """Whether a node comes later than the leader, before its own loop, and does not take long."""
    request = state.request
    if leader.number > request.number or leader.turn >= request.turn or request.has_begun(loop):
        return False
    num_steps = min(request.work.count(loop.profile), leader.work.count(loop.profile))
    limit_s = MAX_DELAY * num_steps * loop.profile.seconds_s
    return state.profile.seconds_s <= limit_s and not loop.kind.has(state)
