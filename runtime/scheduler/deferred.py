"""Deferred inputs: nodes that run while what they will need is still made on another executor.

A node is sent once each of its deferred inputs is there or made by a node that runs. So whoever
waits on an executor waits for a batch that was sent before its own: no waiting in a circle, however
many executors there are. Source: LegoDiffusion (arXiv 2604.08123), section 4.3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..protocol import AwaitedValue
from .actions import AnyAction, CancelSent, Provide
from .executors import Executors, ExecutorSlot, RunningCall
from .node_state import NodeState, NodeStatus, ValueId
from .placement import Placer, fetch_s
from .request_state import RequestState

USED_AFTER: Final = 0.5  # of a denoiser's evaluation: its encoder half and the middle block


@dataclass(slots=True)
class DeferredInputs:
    """Hands on values to batches that wait for them; cancels those that would wait for ever."""

    executors: Executors
    actions: list[AnyAction]

    def provide(self, state: NodeState) -> None:
        """A node is done: executors that run with its values on their way get them."""
        running = [
            reader.executor
            for reader in state.request.deferred_readers(state)
            if reader.status is NodeStatus.RUNNING and reader.executor is not None
        ]
        for executor in dict.fromkeys(running):
            for port in range(len(state.node.outputs)):
                self._provide(state.request, (state.node.id, port), self.executors[executor])

    def cancel_orphans(self) -> None:
        """Cancel batches that wait for a value which nobody makes any more; their nodes run again.

        Called after each event and before anything is sent.
        """
        for slot in self.executors:
            batch = slot.running
            if batch is None or batch.is_cancelled or all(map(_gets_all, batch.calls)):
                continue
            batch.is_cancelled = batch.is_orphaned = True
            self.actions.append(CancelSent(executor=slot.executor, batch_id=batch.batch_id))

    def is_early(self, state: NodeState, now_s: float) -> bool:
        """Whether a ready node, sent now, would come to wait for its deferred inputs."""
        use_s = USED_AFTER * state.profile.seconds_s
        return self.longest_wait_s(state, now_s) > use_s

    def longest_wait_s(self, state: NodeState, now_s: float) -> float:
        """Estimated seconds until all that a node awaits is made; 0 when it is there."""
        request = state.request
        makers = [request.nodes[v[0]] for v in state.deferred if v not in request.values]
        return max(
            (
                self.executors[maker.executor].until_made_s(maker, now_s)
                for maker in makers
                if maker.status is NodeStatus.RUNNING and maker.executor is not None
            ),
            default=0.0,
        )

    def _provide(self, request: RequestState, value_id: ValueId, slot: ExecutorSlot) -> None:
        """Hand a value to the calls of a batch that await it; it is told once."""
        batch = slot.running
        if batch is None or batch.is_cancelled:
            return
        waiting = [c for c in batch.calls if c.state.request is request and value_id in c.awaited]
        if not waiting:
            return
        value = request.values[value_id]
        for call in waiting:
            call.inputs[value_id] = value
            call.awaited.remove(value_id)
            request.tensors.send(value, slot.executor, slot.incarnation)
        self.actions.append(
            Provide(
                executor=slot.executor,
                batch_id=batch.batch_id,
                awaited=awaited_value(request, value_id),
                value=value.ref,
            )
        )


def awaited_value(request: RequestState, value_id: ValueId) -> AwaitedValue:
    """What stands for a value in a message until it is made."""
    node_id, port = value_id
    return AwaitedValue(request_id=request.request_id, node_id=node_id, port=port)


def _gets_all(call: RunningCall) -> bool:
    """Whether all that a call waits for is being made."""
    return all(call.state.request.is_coming(call.state, value_id) for value_id in call.awaited)


def beside_reader(
    state: NodeState, idle: Sequence[ExecutorSlot], placer: Placer, *, is_spare: bool
) -> list[ExecutorSlot]:
    """Where to run a node so that the one that awaits its value can run at the same time.

    That is any idle executor but the one where the reader's model is. Empty: it makes no
    difference, or what is gained by running both at once does not pay for loading the model there,
    or both models are in one place and another request makes better use of an executor that is not
    spare (`is_spare`: none waits for it).
    """
    open_readers = [
        reader
        for reader in state.request.deferred_readers(state)
        if reader.status is NodeStatus.WAITING and reader.node.model is not None
    ]
    if state.node.model is None or not open_readers:
        return []
    reader = min(open_readers, key=lambda reader: reader.order)
    assert reader.node.model is not None
    replicas, key, reader_key = placer.replicas, state.node.model.key, reader.node.model.key
    homes = [slot for slot in idle if replicas.has(slot.executor, reader_key)]
    if not homes:
        return []
    home = min(homes, key=lambda slot: fetch_s(reader, slot))
    others = [slot for slot in idle if slot is not home]
    is_at_home = replicas.has(home.executor, key)
    if is_at_home and not is_spare:
        return []
    if any(replicas.has(slot.executor, key) for slot in others):
        return others
    gain_s = min(state.profile.seconds_s, reader.profile.seconds_s)
    gain_s *= state.request.work.count(state.profile)
    return others if not is_at_home or placer.profiles.load(key).seconds_s < gain_s else []
