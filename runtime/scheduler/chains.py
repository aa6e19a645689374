"""Chains: an executor that nobody else needs is sent what comes next, before it asks.

A batch may be followed by nodes that read what it makes: they are sent ahead and begin without a
word from the coordinator. So an idle cluster runs at the speed of a plain loop. A chain ends at the
next boundary when somebody else wants the executor: what has not begun is recalled and comes back.
A chain holds nodes whose inputs are there or made earlier in it. So it never waits for another
executor, and nothing waits in a circle. Source: architecture, sections 2 and 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ..protocol import ValueRef
from .actions import AnyAction, Recall
from .batching import ReadyQueue
from .executors import Executors, ExecutorSlot, RunningBatch
from .node_state import NodeState, NodeStatus, ValueId
from .placement import Placer
from .ranking import Ranking, by_order
from .request_state import RequestState
from .sending import Sender
from .tensors import HeldValue

LOOK_AT: Final = 8  # foremost nodes of a group, for one that should join a link
TOP_UP_BELOW: Final = 0.5  # of what may be sent ahead


@dataclass(slots=True)
class Chains:
    """Sends batches ahead, and recalls them; appends to `actions`.

    Args:
        max_ahead: batches behind the running one at most: a recall costs a report for each.
    """

    ready: ReadyQueue
    executors: Executors
    placer: Placer
    ranking: Ranking
    sender: Sender
    actions: list[AnyAction]
    max_ahead: int

    def update(self, now_s: float) -> None:
        """Called when nothing more can be sent to idle executors: who is still busy goes on."""
        is_one_idle = any(slot.running is None for slot in self.executors)
        for slot in self.executors:
            if slot.running is None or slot.running.is_cancelled or not self.max_ahead:
                continue
            if self._must_end(slot, is_one_idle):
                self._recall(slot)
            elif self._may_grow(slot):
                self._extend(slot, is_one_idle, now_s)

    def take(
        self, state: NodeState, slot: ExecutorSlot, refs: Sequence[ValueRef]
    ) -> list[HeldValue]:
        """A node is done and gave these values: what comes later in its chain has them now.

        Even if its request is over: others may share the batch that reads them by now.
        """
        request = state.request
        values = [request.tensors.hold(ref, slot.executor, slot.incarnation) for ref in refs]
        for batch in slot.batches():
            for call in batch.calls:
                if call.state.request is not request:
                    continue
                for port, value in enumerate(values):
                    value_id = state.node.id, port
                    if value_id in call.chained:
                        call.chained.remove(value_id)
                        call.inputs[value_id] = value
                        request.tensors.send(value, slot.executor, slot.incarnation)
        return values

    def _must_end(self, slot: ExecutorSlot, is_one_idle: bool) -> bool:
        """Whether the rest of a chain must come back, though it could go on."""
        if not slot.later or slot.later[0].is_recalled:
            return False
        calls = [call for batch in slot.later for call in batch.calls]
        if slot.is_drop_wanted or any(call.state.request.ending is not None for call in calls):
            return True
        if is_one_idle and any(batch.could_part for batch in slot.later):
            return True
        if not self._pays(len(slot.later[0].calls), slot):
            return True
        return self._is_wanted([call.state for call in slot.later[0].calls], slot)

    def _may_grow(self, slot: ExecutorSlot) -> bool:
        if slot.is_chain_done or slot.is_drop_wanted or slot.running is None:
            return False
        is_short = len(slot.later) <= TOP_UP_BELOW * self.max_ahead
        last = slot.batches()[-1]
        return is_short and not self._is_wanted([call.state for call in last.calls], slot)

    def _recall(self, slot: ExecutorSlot) -> None:
        for batch in slot.later:
            batch.is_recalled = True
        batch_ids = tuple(batch.batch_id for batch in slot.later if not batch.is_cancelled)
        if batch_ids:
            self.actions.append(Recall(executor=slot.executor, batch_ids=batch_ids))

    def _extend(self, slot: ExecutorSlot, is_one_idle: bool, now_s: float) -> None:
        while len(slot.later) < self.max_ahead:
            last = slot.batches()[-1]
            if last.is_recalled or last.is_cancelled:
                return
            states, could_part = self._next_link(slot, last)
            slot.is_chain_done = not states
            if not states or (could_part and is_one_idle) or self._is_wanted(states, slot):
                return
            duration_s = self.placer.duration_s(states, slot)
            self.sender.send(slot, states, duration_s, now_s).could_part = could_part

    def _next_link(self, slot: ExecutorSlot, last: RunningBatch) -> tuple[list[NodeState], bool]:
        """What may follow the last batch: a node, or the next call of each of its loops.

        Also whether another executor could take a part of what may follow.
        """
        requests = list(dict.fromkeys(call.state.request for call in last.calls))
        fronts = [self._front(request, slot) for request in requests]
        if not all(fronts) or not self._is_fit(fronts[0][0], slot):
            return [], False
        states = [state for front in fronts for state in front]
        link = states if self._goes_on(states, slot, last) else states[:1]
        if len(link) < len(fronts):
            return [], False
        could_part = len(states) > 1 or any(s.request.deferred_readers(s) for s in link)
        return link, could_part

    def _goes_on(self, states: list[NodeState], slot: ExecutorSlot, last: RunningBatch) -> bool:
        """Whether nodes may follow a batch of just as many calls, as one batch again.

        That is decided as for ready nodes (`batching.py`), as far as their inputs are known: what
        is the same from batch to batch reads the same shapes as the running one.
        """
        running = slot.running
        assert running is not None
        kinds = {(state.node.op, state.node.model) for state in states}
        kinds |= {(batch.op, batch.model) for batch in (running, last)}
        if len(kinds) > 1 or len(states) != len(last.calls) or running.model is None:
            return False
        if len(states) > 1 and any(state.num_deaths for state in states):
            return False
        return len({self.placer.shape(s) for s in states}) == 1 and self._pays(len(states), slot)

    def _pays(self, num_calls: int, slot: ExecutorSlot) -> bool:
        """Whether so many calls like those that run should be one batch."""
        running = slot.running
        assert running is not None
        if num_calls == 1:
            return True
        head = running.calls[0].state
        costs = self.placer.costs(head, running.shape)
        is_fair = num_calls <= self.placer.shares.largest(head)
        return is_fair and costs.best_size(num_calls) == num_calls

    def _front(self, request: RequestState, slot: ExecutorSlot) -> list[NodeState]:
        """The request's nodes that an executor could run after what it was sent, in order."""
        made = {
            (call.state.node.id, port)
            for batch in slot.batches()
            for call in batch.calls
            if call.state.request is request
            for port in range(len(call.state.node.outputs))
        }
        readers = (state for value_id in made for state in request.readers.get(value_id, ()))
        front = [state for state in dict.fromkeys(readers) if _is_supplied(state, made)]
        return sorted(front, key=lambda state: state.order)

    def _is_fit(self, state: NodeState, slot: ExecutorSlot) -> bool:
        """Whether the executor has the node's model as the node wants it."""
        model = state.node.model
        if model is None:
            return True
        is_there = self.placer.replicas.has(slot.executor, model.key)
        return is_there and self.placer.patches(slot, model) == model.patches

    def _is_wanted(self, link: list[NodeState], slot: ExecutorSlot) -> bool:
        """Whether nodes that wait for an executor go before a link, or should join it."""
        node, running = link[0].node, slot.running
        assert running is not None
        is_going_on = (running.op, running.model) == (node.op, node.model)
        for rank, group in self.ranking.candidates():
            rivals = [s for s in islice(group.nodes, LOOK_AT + len(link)) if s not in link]
            if not rivals:
                continue
            if (rank if rivals[0] is group.nodes[0] else by_order(rivals[0])) < by_order(link[0]):
                return True
            if (group.op, group.model) != (node.op, node.model) or not is_going_on:
                continue
            if any(state.num_deaths for state in link):  # it goes alone
                continue
            if any(self.placer.may_join(len(link), running.shape, rival) for rival in rivals):
                return True
        return False


def _is_supplied(state: NodeState, made: Iterable[ValueId]) -> bool:
    """Whether an open node has all its inputs, or gets them within the chain."""
    if state.status not in (NodeStatus.WAITING, NodeStatus.READY):
        return False
    return all(v in state.request.values or v in made for v in state.inputs)
