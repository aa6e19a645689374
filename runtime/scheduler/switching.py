"""Whose turn it is among nodes that want other patches on the same model.

Order is by request, whatever a node needs. One exception saves switching to and fro: where the
foremost node would have an executor switch patches, a later node that needs no switch there goes
first, if its request's calls of that kind have begun or are nearly over. The exception is bounded:
what has begun ends, and what else goes before a node is estimated to delay it by at most
MAX_DELAY_SWITCHES times what a switch takes, and is at most MAX_PASSES batches. So nothing waits
for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...graph_import.handles import ModelRef
from .batching import ReadyGroup, ReadyQueue
from .executors import Executors, ExecutorSlot
from .node_state import NodeState
from .profiles import Profiles
from .replicas import Replicas

MAX_PASSES: Final = 8
MAX_DELAY_SWITCHES: Final = 2.0


@dataclass(slots=True)
class PatchTurns:
    """What the patches that executors have now say about order and place."""

    ready: ReadyQueue
    executors: Executors
    replicas: Replicas
    profiles: Profiles

    def goes_before(self, group: ReadyGroup) -> NodeState | None:
        """The foremost node that `group` may go before, though it comes later in order."""
        heads = [other.nodes[0] for other in self._passed_by(group)]
        return min(heads, key=lambda state: state.order, default=None)

    def may_go_along(self, group: ReadyGroup) -> Callable[[NodeState], bool]:
        """Which nodes may share a batch with the head of their group.

        Where it goes before other nodes, those that may do so themselves: each that joined would
        have begun, and go before them to its end, and so would the next.
        """
        passed = self._passed_by(group)
        return lambda state: all(self._may_pass(state, other) for other in passed)

    def note(self, group: ReadyGroup, states: list[NodeState]) -> None:
        """`states` of the group are sent: those that they go before have waited for them."""
        for other in self._rivals(group):
            if other.nodes[0].order < states[0].order:
                other.passes.add(other.nodes[0], states[0].profile.seconds_s * len(states))

    def switch_s(self, model: ModelRef, slot: ExecutorSlot) -> float:
        """Estimated seconds to put the patches of a model on the replica that an executor has.

        Twice that where another ready node wants the ones that are on it: they must come back.
        """
        current = self.replicas.patches(slot.executor, model.key)
        if current == model.patches:
            return 0.0
        return self.profiles.switch(model.key).seconds_s * (2 if self.is_wanted(model, slot) else 1)

    def is_wanted(self, model: ModelRef, slot: ExecutorSlot) -> bool:
        """Whether ready nodes of other patches than `model`'s need no switch on an executor."""
        current = self.replicas.patches(slot.executor, model.key)
        return current != model.patches and any(
            other.model is not None
            and other.model.key == model.key
            and other.model.patches == current
            for other in self.ready.groups()
        )

    def _passed_by(self, group: ReadyGroup) -> list[ReadyGroup]:
        """The groups with earlier heads that the head of `group` may go before."""
        model, head = group.model, group.nodes[0]
        if model is None or not self._is_on_idle(model):
            return []
        return [
            other
            for other in self._rivals(group)
            if other.nodes[0].order < head.order and self._may_pass(head, other)
        ]

    def _rivals(self, group: ReadyGroup) -> list[ReadyGroup]:
        """The ready groups of the same model with other patches."""
        model = group.model
        if model is None:
            return []
        return [
            other
            for other in self.ready.groups()
            if other.model is not None
            and other.model.key == model.key
            and other.model.patches != model.patches
        ]

    def _is_on_idle(self, model: ModelRef) -> bool:
        """Whether an idle executor has the model with just these patches."""
        return any(
            slot.running is None
            and self.replicas.has(slot.executor, model.key)
            and self.replicas.patches(slot.executor, model.key) == model.patches
            for slot in self.executors
        )

    def _may_pass(self, state: NodeState, other: ReadyGroup) -> bool:
        """Whether all that `state`'s request has of its kind may go before the head of `other`."""
        assert other.model is not None
        if self._is_on_idle(other.model):
            return False
        loop = state.request.loop
        if loop is not None and loop.kind.has(state) and state.request.has_begun(loop):
            return True
        num_calls = state.request.work.count(state.profile)
        num_before, delay_s = other.passes.of(other.nodes[0])
        limit_s = MAX_DELAY_SWITCHES * self.profiles.switch(other.model.key).seconds_s
        return (
            num_before + num_calls <= MAX_PASSES
            and delay_s + num_calls * state.profile.seconds_s <= limit_s
        )
