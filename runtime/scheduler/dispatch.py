"""Handing ready nodes to idle executors until nothing more can or should be sent."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from .batching import ReadyGroup, ReadyQueue
from .deferred import DeferredInputs, beside_reader
from .executors import Executors, ExecutorSlot
from .node_state import NodeState
from .placement import Placer
from .ranking import Ranking
from .sending import Sender


@dataclass(slots=True)
class Dispatcher:
    """Decides what is sent next, and where."""

    ready: ReadyQueue
    executors: Executors
    placer: Placer
    ranking: Ranking
    deferred: DeferredInputs
    sender: Sender

    def dispatch(self, now_s: float) -> None:
        """Send what can be sent, what ranks foremost first.

        Nodes that would come to wait for deferred inputs go last: sent before others they would
        hold an executor that those can use, and end no sooner.
        """
        early: list[NodeState] = []
        self._send_all(now_s, early)
        for state in early:
            self.ready.add(state)
        if early:
            self._send_all(now_s, None)

    def _send_all(self, now_s: float, early: list[NodeState] | None) -> None:
        """One round; what would wait is taken off the queue and put into `early`, if given.

        A group that rather waits for a busy executor is not asked again in this round: sending
        others' nodes only makes fewer executors idle.
        """
        idle = [slot for slot in self.executors if slot.running is None]
        declined: set[NodeState] = set()  # heads
        while idle:
            if early is not None:
                self._hold_back(early, now_s)
            # Anew each time: others may be ready by now, or have lost their turn.
            candidates = [
                (rank, group)
                for rank, group in self.ranking.candidates()
                if group.nodes[0] not in declined
            ]
            if not candidates:
                return
            _, group = min(candidates, key=itemgetter(0))
            placed = self._place(group, idle, now_s)
            if placed is None:
                declined.add(group.nodes[0])
                continue
            slot, states = placed
            idle.remove(slot)
            self._send(slot, group, states, now_s)

    def _hold_back(self, early: list[NodeState], now_s: float) -> None:
        for state in list(self.ready.with_deferred):
            if self.deferred.is_early(state, now_s):
                self.ready.remove(state)
                early.append(state)

    def _place(
        self, group: ReadyGroup, idle: list[ExecutorSlot], now_s: float
    ) -> tuple[ExecutorSlot, list[NodeState]] | None:
        """As the placer says; what another node awaits goes beside that node if it can."""
        request = group.nodes[0].request
        is_spare = all(other.nodes[0].request is request for other in self.ready.groups())
        others = beside_reader(group.nodes[0], idle, self.placer, is_spare=is_spare)
        placed = self.placer.place(group, others, now_s) if others else None
        return placed or self.placer.place(group, idle, now_s)

    def _send(
        self, slot: ExecutorSlot, group: ReadyGroup, states: list[NodeState], now_s: float
    ) -> None:
        wait_s = max(self.deferred.longest_wait_s(state, now_s) for state in states)
        duration_s = max(wait_s, self.placer.duration_s(states, slot))
        self.sender.send(slot, states, duration_s, now_s)
