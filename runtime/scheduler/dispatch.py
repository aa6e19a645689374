"""Handing ready nodes to idle executors until nothing more can or should be sent."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ...graph_import.ir import EdgeKind
from ..ids import BatchId
from ..protocol import NodeCall, NodeInput, RunBatch
from .actions import AnyAction, NodeStarted, RequestStarted, SendBatch
from .batching import ReadyGroup, ReadyQueue
from .executors import Executors, ExecutorSlot, RunningBatch, RunningCall
from .node_state import NodeState
from .placement import Placer


@dataclass(slots=True)
class Dispatcher:
    """Sends batches; appends to `actions` what the coordinator must do for that."""

    ready: ReadyQueue
    executors: Executors
    placer: Placer
    actions: list[AnyAction]
    num_batches: int = 0

    def dispatch(self, now_s: float) -> None:
        """Send what can be sent, the group with the foremost head first.

        A group that rather waits for a busy executor is not asked again in this round: sending
        others' nodes only makes fewer executors idle.
        """
        idle = [slot for slot in self.executors if slot.running is None]
        if not idle:
            return
        heads = [(group.nodes[0].order, group) for group in self.ready.groups()]
        heapify(heads)
        while heads and idle:
            _, group = heappop(heads)
            placed = self.placer.place(group, idle, now_s)
            if placed is None:
                continue
            slot, states = placed
            idle.remove(slot)
            self._send(slot, group, states, now_s)
            if group.nodes:
                heappush(heads, (group.nodes[0].order, group))

    def _send(
        self, slot: ExecutorSlot, group: ReadyGroup, states: list[NodeState], now_s: float
    ) -> None:
        self.num_batches += 1
        batch_id = BatchId(self.num_batches)
        duration_s = self.placer.duration_s(group, states, slot)
        calls = tuple(RunningCall(state, state.request.start(state, slot)) for state in states)
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
    values = dict(zip(call.state.inputs, call.inputs, strict=True))
    return NodeCall(
        request_id=call.state.request.request_id,
        node_id=node.id,
        params=node.params,
        inputs=tuple(
            NodeInput(
                name=name,
                value=values[edge.source, edge.port].ref,
                is_deferred=edge.kind is EdgeKind.DEFERRED,
            )
            for name, edge in node.inputs
        ),
        num_outputs=len(node.outputs),
        hidden=(),
    )
