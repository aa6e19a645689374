"""Which ready nodes are next: by request, with two exceptions that save work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .batching import ReadyGroup, ReadyQueue
from .catching_up import CatchingUp, Leaders
from .node_state import NodeState, Order
from .switching import PatchTurns

Rank = tuple[Order, bool, Order]  # the least goes first


@dataclass(slots=True)
class Ranking:
    """Ranks groups, and parts of groups that may go before the rest."""

    ready: ReadyQueue
    turns: PatchTurns
    catching_up: CatchingUp

    def candidates(self) -> Iterator[tuple[Rank, ReadyGroup]]:
        """All that may be sent next. No two have equal ranks."""
        leaders: Leaders = {}
        for group in self.ready.groups():
            head, passed = group.nodes[0], self.turns.goes_before(group)
            yield (passed.order, False, head.order) if passed else by_order(head), group
            ahead = self.catching_up.ahead(group, leaders)
            if ahead is not None:
                turn, part = ahead
                yield (turn, False, part.nodes[0].order), part


def by_order(state: NodeState) -> Rank:
    """The rank of a node that takes its turn."""
    return state.order, True, state.order
