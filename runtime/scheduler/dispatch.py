"""Handing ready nodes to idle executors until nothing more can or should be sent."""

from __future__ import annotations

from dataclasses import dataclass

from ...graph_import.ir import Edge, EdgeKind
from ..ids import BatchId
from ..protocol import NodeCall, NodeInput, RunBatch
from .actions import AnyAction, NodeStarted, RequestStarted, SendBatch
from .batching import ReadyGroup, ReadyQueue
from .deferred import DeferredInputs, awaited_value, beside_reader
from .executors import Executors, ExecutorSlot, RunningBatch, RunningCall
from .node_state import NodeState, Order
from .placement import Placer

Rank = tuple[Order, bool, Order]


@dataclass(slots=True)
class Dispatcher:
    """Sends batches; appends to `actions` what the coordinator must do for that."""

    ready: ReadyQueue
    executors: Executors
    placer: Placer
    deferred: DeferredInputs
    actions: list[AnyAction]
    num_batches: int = 0

    def dispatch(self, now_s: float) -> None:
        """Send what can be sent, the group with the foremost head first.

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
        declined: set[ReadyGroup] = set()
        while idle:
            if early is not None:
                self._hold_back(early, now_s)
            # Anew each time: others may be ready by now, or have lost their turn.
            groups = [group for group in self.ready.groups() if group not in declined]
            if not groups:
                return
            group = min(groups, key=self._rank)
            placed = self._place(group, idle, now_s)
            if placed is None:
                declined.add(group)
                continue
            slot, states = placed
            idle.remove(slot)
            self._send(slot, group, states, now_s)

    def _hold_back(self, early: list[NodeState], now_s: float) -> None:
        for state in list(self.ready.with_deferred):
            if self.deferred.is_early(state, now_s):
                self.ready.remove(state)
                early.append(state)

    def _rank(self, group: ReadyGroup) -> Rank:
        """By order; but one that needs no other patches may go before its turn (`switching.py`)."""
        head, ahead = group.nodes[0], self.placer.turns.goes_before(group)
        turn = head.order if ahead is None else ahead.order
        return turn, ahead is None, head.order

    def _place(
        self, group: ReadyGroup, idle: list[ExecutorSlot], now_s: float
    ) -> tuple[ExecutorSlot, list[NodeState]] | None:
        """As the placer says; what another node awaits goes beside that node if it can."""
        others = beside_reader(group.nodes[0], idle, self.placer)
        placed = self.placer.place(group, others, now_s) if others else None
        return placed or self.placer.place(group, idle, now_s)

    def _send(
        self, slot: ExecutorSlot, group: ReadyGroup, states: list[NodeState], now_s: float
    ) -> None:
        self.num_batches += 1
        batch_id = BatchId(self.num_batches)
        wait_s = max(self.deferred.longest_wait_s(state, now_s) for state in states)
        duration_s = max(wait_s, self.placer.duration_s(group, states, slot))
        calls = tuple(state.request.start(state, slot) for state in states)
        slot.running = RunningBatch(batch_id, group.op, calls, due_s=now_s + duration_s)
        if group.model is not None:
            self.placer.replicas.send(slot.executor, group.model.key)
        for state in states:
            self._announce(state, slot)
        self.actions.append(
            SendBatch(
                executor=slot.executor,
                batch=RunBatch(
                    batch_id=batch_id,
                    op=group.op,
                    model=group.model,
                    calls=tuple(map(_node_call, calls)),
                ),
                hidden=tuple(state.node.hidden for state in states),
            )
        )

    def _announce(self, state: NodeState, slot: ExecutorSlot) -> None:
        request = state.request
        if not request.is_started:
            request.is_started = True
            self.actions.append(RequestStarted(request_id=request.request_id))
        self.actions.append(
            NodeStarted(
                request_id=request.request_id, node_id=state.node.id, executor=slot.executor
            )
        )


def _node_call(call: RunningCall) -> NodeCall:
    """The call as the executor gets it; the coordinator fills in `hidden`."""
    node = call.state.node
    return NodeCall(
        request_id=call.state.request.request_id,
        node_id=node.id,
        params=node.params,
        inputs=tuple(_node_input(call, name, edge) for name, edge in node.inputs),
        num_outputs=len(node.outputs),
        hidden=(),
    )


def _node_input(call: RunningCall, name: str, edge: Edge) -> NodeInput:
    value_id = edge.source, edge.port
    value = call.inputs.get(value_id)
    return NodeInput(
        name=name,
        value=awaited_value(call.state.request, value_id) if value is None else value.ref,
        is_deferred=edge.kind is EdgeKind.DEFERRED,
    )
