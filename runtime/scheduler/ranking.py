"""Which group of ready nodes is next: by request, with two exceptions that save work."""

from __future__ import annotations

from dataclasses import dataclass

from .batching import ReadyGroup
from .catching_up import CatchingUp
from .node_state import NodeState, Order
from .switching import PatchTurns

Rank = tuple[Order, bool, Order]  # the least goes first


@dataclass(slots=True)
class Ranking:
    """Ranks groups by their heads."""

    turns: PatchTurns
    catching_up: CatchingUp

    def of(self, group: ReadyGroup) -> Rank:
        """A group that may go before an earlier node (`switching.py`, `catching_up.py`) does."""
        before = [self.turns.goes_before(group), self.catching_up.leader(group)]
        ahead = min((s for s in before if s is not None), key=lambda s: s.order, default=None)
        return (
            by_order(group.nodes[0])
            if ahead is None
            else (ahead.order, False, group.nodes[0].order)
        )


def by_order(state: NodeState) -> Rank:
    """The rank of a node that takes its turn."""
    return state.order, True, state.order
