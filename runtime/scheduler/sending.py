"""Sending batches: what the executor is told, and when clients hear that its nodes run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...graph_import.ir import Edge, EdgeKind
from ..ids import BatchId
from ..protocol import NodeCall, NodeInput, RunBatch
from .actions import AnyAction, NodeStarted, RequestStarted, SendBatch
from .checkpoints import checkpointed_ports
from .deferred import awaited_value
from .executors import ExecutorSlot, RunningBatch, RunningCall
from .node_state import NodeState
from .replicas import Replicas


@dataclass(slots=True)
class Sender:
    """Sends batches; appends to `actions` what the coordinator must do for that."""

    replicas: Replicas
    actions: list[AnyAction]
    num_batches: int = 0

    def send(
        self, slot: ExecutorSlot, states: Sequence[NodeState], duration_s: float, now_s: float
    ) -> RunningBatch:
        """Send nodes of one op and one model: to an idle executor, or behind what it was sent."""
        node = states[0].node
        self.num_batches += 1
        before = slot.batches()
        calls = tuple(state.request.start(state, slot) for state in states)
        due_s = duration_s + max([now_s, *(batch.due_s for batch in before[-1:])])
        batch = RunningBatch(
            BatchId(self.num_batches), node.op, node.model, calls, duration_s, due_s
        )
        if before:
            slot.later.append(batch)
        else:
            slot.running = batch
        if node.model is not None:
            self.replicas.send(slot.executor, node.model.key)
        if not before:
            self.announce(batch, slot)
        self.actions.append(
            SendBatch(
                executor=slot.executor,
                batch=RunBatch(
                    batch_id=batch.batch_id,
                    op=batch.op,
                    model=batch.model,
                    calls=tuple(map(_node_call, calls)),
                    after=before[-1].batch_id if before else None,
                ),
                hidden=tuple(state.node.hidden for state in states),
            )
        )
        return batch

    def announce(self, batch: RunningBatch, slot: ExecutorSlot) -> None:
        """Tell that the nodes of a batch run; nothing is told twice, or of a request that ends."""
        if batch.is_announced:
            return
        batch.is_announced = True
        for call in batch.calls:
            request = call.state.request
            if request.ending is not None:
                continue
            if not request.is_started:
                request.is_started = True
                self.actions.append(RequestStarted(request_id=request.request_id))
            self.actions.append(
                NodeStarted(
                    request_id=request.request_id,
                    node_id=call.state.node.id,
                    executor=slot.executor,
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
        checkpoints=checkpointed_ports(node),
    )


def _node_input(call: RunningCall, name: str, edge: Edge) -> NodeInput:
    value_id = edge.source, edge.port
    value = call.inputs.get(value_id)
    return NodeInput(
        name=name,
        value=awaited_value(call.state.request, value_id) if value is None else value.ref,
        is_deferred=edge.kind is EdgeKind.DEFERRED,
    )
