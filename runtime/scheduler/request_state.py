"""One request's progress through its Graph: what is ready, what its values are, how it ends.

Only this class changes the status of nodes. It knows nothing of executors' states or of actions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ...graph_import.ir import EdgeKind, Graph, Node, NodeId
from ...graph_import.types import SAMPLER_STATE
from ..errors import InvariantBroken
from ..ids import RequestId
from ..protocol import ErrorReport
from .actions import Outcome
from .batching import ReadyQueue, shape_of
from .executors import ExecutorSlot, RunningCall
from .growth import Growth
from .loops import Loop, LoopBook
from .node_state import NodeState, NodeStatus, Order, ValueId
from .profiles import OpenWork, Profiles
from .tensors import HeldValue, TensorBook

STORY_LENGTH: Final = 40  # the last changes that an InvariantBroken tells of


@dataclass(slots=True, frozen=True)
class Ending:
    """How the request will have ended once no executor runs a node of it."""

    outcome: Outcome
    node_id: NodeId | None = None
    error: ErrorReport | None = None


@dataclass(slots=True, eq=False)
class RequestState:
    """A live request.

    Args:
        readers: the nodes that read a value, in graph order.
        values: the values that are there: neither lost nor read by all who wanted them.
        open_sinks: the sinks that are not done.
    """

    request_id: RequestId
    number: float
    ready: ReadyQueue
    tensors: TensorBook
    profiles: Profiles
    loops: LoopBook
    nodes: dict[NodeId, NodeState] = field(default_factory=dict)
    readers: dict[ValueId, list[NodeState]] = field(default_factory=dict)
    values: dict[ValueId, HeldValue] = field(default_factory=dict)
    running: dict[NodeId, NodeState] = field(default_factory=dict)
    sinks: frozenset[NodeId] = frozenset()
    open_sinks: set[NodeId] = field(default_factory=set)
    growth: Growth = field(default_factory=Growth)
    work: OpenWork = field(default_factory=OpenWork)
    loop: Loop | None = None
    story: deque[tuple[NodeId, NodeStatus]] = field(
        default_factory=lambda: deque(maxlen=STORY_LENGTH)
    )
    is_started: bool = False
    ending: Ending | None = None

    @property
    def turn(self) -> Order:
        """Where its nodes begin in the order of all nodes."""
        return self.number, self.request_id, -1, 0, NodeId("")

    def tell_story(self) -> str:
        """What happened last, for the message of an InvariantBroken."""
        steps = ", ".join(f"{node_id} {status}" for node_id, status in self.story)
        return f"request {self.request_id} so far: {steps or 'nothing'}"

    def extend(self, graph: Graph) -> list[NodeState]:
        """Take in a graph, the first or a grown one; returns its new nodes.

        They must be brought to `settle` once lost producers are reopened (`recovery.py`).
        Raises: InvariantBroken: a known node is missing in it or differs.
        """
        by_id = graph.by_id()
        for node_id, state in self.nodes.items():
            if by_id.get(node_id) != state.node:
                raise InvariantBroken(
                    f"the grown graph changes node {node_id}; {self.tell_story()}",
                    request_id=self.request_id,
                    node_id=node_id,
                )
        new = [
            self._add(node, position)
            for position, node in enumerate(graph.nodes)
            if node.id not in self.nodes
        ]
        self.sinks = frozenset(graph.sinks)
        self.open_sinks = {
            node_id for node_id in graph.sinks if self.nodes[node_id].status != NodeStatus.DONE
        }
        self.growth.replace(graph.pending)
        self._leave_loop()
        self.loop = self.loops.find(self.nodes.values())
        self._enter_loop()
        return new

    def has_begun(self, loop: Loop) -> bool:
        """Whether the first of the calls was made."""
        return self.work.count(loop.profile) < loop.num_calls

    def _add(self, node: Node, position: int) -> NodeState:
        inputs = tuple(dict.fromkeys((edge.source, edge.port) for _, edge in node.inputs))
        eager = {(e.source, e.port) for _, e in node.inputs if e.kind is EdgeKind.EAGER}
        key = None if node.model is None else node.model.key
        state = NodeState(
            node=node,
            order=(self.number, self.request_id, node.depth, position, node.id),
            request=self,
            profile=self.profiles.call(node.op, key),
            inputs=inputs,
            deferred=frozenset(inputs) - eager,
        )
        self.nodes[node.id] = state
        self.work.add(state.profile)
        for value_id in inputs:
            self.readers.setdefault(value_id, []).append(state)
            if value_id in self.values:
                self.values[value_id].num_readers += 1
        return state

    def settle(self, states: Iterable[NodeState]) -> None:
        """Waiting nodes: count what they miss, and make ready those that miss nothing."""
        for state in states:
            state.num_missing = self._count_missing(state)
            self._wake(state)

    def start(self, state: NodeState, slot: ExecutorSlot) -> RunningCall:
        """A node goes to an executor with what is there of its inputs.

        It is ready, or its inputs are there once the executor has run what it was sent before.
        What it makes is on its way now: nodes that may start without it become ready.
        """
        if state.status is NodeStatus.READY:
            self.ready.remove(state)
        state.move(NodeStatus.RUNNING)
        state.executor = slot.executor
        self.running[state.node.id] = state
        there = {v: self.values[v] for v in state.inputs if v in self.values}
        for value in there.values():
            self.tensors.send(value, slot.executor, slot.incarnation)
        chained = [v for v in state.inputs if v not in there and slot.makes(self, v)]
        for reader in self._expecting(state):
            if reader.status is NodeStatus.WAITING:
                reader.num_missing -= 1
                self._wake(reader)
        known = there.keys() | chained
        return RunningCall(state, there, [v for v in state.inputs if v not in known], chained)

    def finish(self, state: NodeState, outputs: Iterable[HeldValue]) -> None:
        """A running node is done and gave one value per port."""
        state.move(NodeStatus.DONE)
        del self.running[state.node.id]
        self.work.remove(state.profile)
        self.open_sinks.discard(state.node.id)
        if self.loop is not None:
            self._note_call(state, self.loop)
        for value_id in state.inputs:
            if value_id in self.values:
                self.values[value_id].num_readers -= 1
                self._retire_if_unwanted(value_id)
        for port, value in enumerate(outputs):
            self._store((state.node.id, port), value)

    def _note_call(self, state: NodeState, loop: Loop) -> None:
        if not self.work.count(loop.profile):
            self._leave_loop()
        elif loop.kind.has(state):
            loop.kind.inside[self] = shape_of(state, self.values)

    def _enter_loop(self) -> None:
        if self.loop is not None and self.work.count(self.loop.profile):
            self.loops.enter(self, self.loop)

    def _leave_loop(self) -> None:
        if self.loop is not None:
            self.loops.leave(self, self.loop)

    def run_again(self, state: NodeState) -> None:
        """A running node was not finished where it ran."""
        del self.running[state.node.id]
        state.num_missing = self._count_missing(state)
        if state.num_missing:
            state.move(NodeStatus.WAITING)
        else:
            state.move(NodeStatus.READY)
            self.ready.add(state)
        for reader in self._expecting(state):
            self._miss(reader)

    def reopen(self, state: NodeState) -> None:
        """A done node must run again; it is settled once all such nodes are reopened."""
        state.move(NodeStatus.WAITING)
        self.work.add(state.profile)
        self._enter_loop()
        if state.node.id in self.sinks:
            self.open_sinks.add(state.node.id)
        for value_id in state.inputs:
            if value_id in self.values:
                self.values[value_id].num_readers += 1

    def lose(self, value_id: ValueId) -> None:
        """A value that is there can't be had any more."""
        self.tensors.retire(self.values.pop(value_id))
        for state in self.readers.get(value_id, ()):
            if not self.is_coming(state, value_id):
                self._miss(state)

    def drop_waiting(self) -> None:
        """The request is over: nothing more is sent, and its values go as running batches end."""
        for state in self.nodes.values():
            if state.status is NodeStatus.READY:
                self.ready.remove(state)
            if state.status in (NodeStatus.WAITING, NodeStatus.READY):
                state.move(NodeStatus.DROPPED)
        for value in self.values.values():
            self.tensors.retire(value)
        self.values.clear()
        self._leave_loop()

    def drop_running(self, state: NodeState) -> None:
        """The request is over, and now the executor is free of this node."""
        del self.running[state.node.id]
        state.move(NodeStatus.DROPPED)

    def retire_unwanted(self) -> None:
        """Give up values that nobody reads; done when the last pending node is lowered."""
        for value_id in list(self.values):
            self._retire_if_unwanted(value_id)

    def first_open(self) -> NodeId | None:
        """The node that runs, or would run next: where an interrupt hits the request."""
        for statuses in (
            (NodeStatus.RUNNING,),
            (NodeStatus.READY,),
            (NodeStatus.WAITING,),
        ):
            found = [state for state in self.nodes.values() if state.status in statuses]
            if found:
                return min(found, key=lambda state: state.order).node.id
        return None

    def is_coming(self, state: NodeState, value_id: ValueId) -> bool:
        """Whether an input of a node is there, or deferred and being made."""
        if value_id in self.values:
            return True
        return value_id in state.deferred and self.nodes[value_id[0]].status is NodeStatus.RUNNING

    def deferred_readers(self, state: NodeState) -> list[NodeState]:
        """The nodes that may start while `state` runs."""
        found = [
            reader
            for port in range(len(state.node.outputs))
            for reader in self.readers.get((state.node.id, port), ())
            if (state.node.id, port) in reader.deferred
        ]
        return list(dict.fromkeys(found))

    def is_wanted(self, value_id: ValueId) -> bool:
        """Whether a value that is there must be kept.

        Scalars are: growth may ask for them at any time, and they cost nothing. So is everything
        that a node not lowered yet might read; states between sampler steps are no such thing.
        """
        value = self.values[value_id]
        if value.num_readers or value.is_scalar:
            return True
        node_id, port = value_id
        port_type = self.nodes[node_id].node.outputs[port].type
        return bool(self.growth.pending) and port_type != SAMPLER_STATE

    def _count_missing(self, state: NodeState) -> int:
        return sum(not self.is_coming(state, value_id) for value_id in state.inputs)

    def _expecting(self, state: NodeState) -> list[NodeState]:
        """Deferred readers, once for each value of a node that is not there."""
        return [
            reader
            for port in range(len(state.node.outputs))
            if (state.node.id, port) not in self.values
            for reader in self.readers.get((state.node.id, port), ())
            if (state.node.id, port) in reader.deferred
        ]

    def _miss(self, state: NodeState) -> None:
        """One more input of a node that has not started is missing."""
        if state.status is NodeStatus.READY:
            self.ready.remove(state)
            state.move(NodeStatus.WAITING)
        if state.status is NodeStatus.WAITING:
            state.num_missing += 1

    def _wake(self, state: NodeState) -> None:
        if state.status is NodeStatus.WAITING and not state.num_missing:
            state.move(NodeStatus.READY)
            self.ready.add(state)

    def _store(self, value_id: ValueId, value: HeldValue) -> None:
        if value_id in self.values:
            # The node ran again for another port's sake; what is there may be in use.
            self.tensors.retire(value)
            return
        readers = self.readers.get(value_id, [])
        value.num_readers = sum(state.status is not NodeStatus.DONE for state in readers)
        self.values[value_id] = value
        for state in readers:
            # A deferred value counted as coming while it was made.
            if state.status is NodeStatus.WAITING and value_id not in state.deferred:
                state.num_missing -= 1
                self._wake(state)
        self._retire_if_unwanted(value_id)

    def _retire_if_unwanted(self, value_id: ValueId) -> None:
        if not self.is_wanted(value_id):
            self.tensors.retire(self.values.pop(value_id))
