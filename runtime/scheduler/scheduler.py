"""The scheduler: events in, actions out. `Scheduler.on_event` is the only door.

Each event is taken in by the request, executor or table that it concerns; then ready nodes are
handed to idle executors until nothing more can or should be sent. Everything is deterministic:
equal events at equal times give equal actions, which is what replaying a journal relies on.
Source: architecture, section 6; LegoDiffusion (arXiv 2604.08123), Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

import msgspec

from ...graph_import.ir import Graph, NodeId
from ..errors import InvariantBroken
from ..ids import BatchId, ExecutorId, RequestId
from ..protocol import CallCancelled, CallDone, CallFailed, CallLost, CallResult, ErrorReport
from .actions import AnyAction, Drop, LowerPending, NodeFinished, NodeReset, Outcome
from .batching import ReadyQueue
from .catching_up import CatchingUp
from .chains import Chains
from .deferred import DeferredInputs
from .dispatch import Dispatcher
from .endings import Endings
from .events import (
    AnyEvent,
    BatchReported,
    ExecutorJoined,
    ExecutorLost,
    GraphGrown,
    GrowthFailed,
    ModelsDropped,
    RequestArrived,
    RequestCancelled,
)
from .executors import Executors, ExecutorSlot, RunningBatch, RunningCall
from .forecast import Forecast, forecast
from .growth import GrowthStuck, next_question
from .loops import LoopBook
from .measuring import learn
from .node_state import NodeState
from .placement import Placer
from .profiles import Profiles
from .ranking import Ranking
from .recovery import inputs_lost, lose_values, poisoned, reopen_producers, wrong_outputs
from .replicas import Replicas
from .request_state import Ending, RequestState
from .sending import Sender
from .shares import Shares
from .switching import PatchTurns
from .tensors import TensorBook
from .views import ExecutorState, NodeView


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler is told once; journaled with its events.

    Args:
        is_strict: every call is a batch of its own, so that pictures are bit for bit the same.
        max_batch: calls in one batch at most (B_max).
        max_attempts: a node that was running on so many executors that died fails its request.
        max_lost: so often a node may be sent in vain because its inputs could not be fetched.
        max_ahead: batches in a chain behind the one that runs at most; 0: there are no chains.
    """

    is_strict: bool = False
    max_batch: int = 8
    max_ahead: int = 16
    max_attempts: int = 2
    max_lost: int = 5


class Scheduler:
    """The control plane's state machine. Its parts are for `invariants.py` to read, nobody else."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.requests: dict[RequestId, RequestState] = {}
        self.executors = Executors()
        self.ready = ReadyQueue()
        self.replicas = Replicas()
        self.profiles = Profiles()
        self.tensors = TensorBook()
        self.loops = LoopBook()
        self._actions: list[AnyAction] = []
        self._endings = Endings(self.requests, self.executors, self._actions)
        max_batch = 1 if config.is_strict else config.max_batch
        turns = PatchTurns(self.ready, self.executors, self.replicas, self.profiles)
        shares = Shares(self.executors, self.replicas, self.loops, max_batch)
        placer = Placer(self.executors, self.replicas, self.profiles, turns, shares)
        self._deferred = DeferredInputs(self.executors, self._actions)
        self._sender = Sender(self.replicas, self._actions)
        catching_up = CatchingUp(self.ready, self.executors, placer)
        ranking = Ranking(self.ready, turns, catching_up)
        self._dispatcher = Dispatcher(
            self.ready, self.executors, placer, ranking, self._deferred, self._sender
        )
        self._chains = Chains(
            self.ready,
            self.executors,
            placer,
            ranking,
            self._sender,
            self._actions,
            config.max_ahead,
        )

    def on_event(self, event: AnyEvent, now_s: float) -> list[AnyAction]:
        """Take in what happened; returns what is to be done, in order.

        `now_s` is any clock that never goes back. Raises: InvariantBroken: our bug; the scheduler
        must not be used any more.
        """
        self._take_in(event, now_s)
        self._deferred.cancel_orphans()
        # Memory is freed before a batch asks for more of it.
        self._actions.extend(self.tensors.flush(self.executors.alive()))
        self._dispatcher.dispatch(now_s)
        self._chains.update(now_s)
        actions = self._actions.copy()
        self._actions.clear()
        return actions

    def request_view(self, request_id: RequestId) -> Mapping[NodeId, NodeView]:
        """The nodes of a live request; empty for an unknown or ended one."""
        request = self.requests.get(request_id)
        states = () if request is None else request.nodes.values()
        return {s.node.id: NodeView(status=s.status, executor=s.executor) for s in states}

    def executors_view(self) -> Mapping[ExecutorId, ExecutorState]:
        """The living executors."""
        return {
            slot.executor: ExecutorState(
                incarnation=slot.incarnation,
                running=None if slot.running is None else slot.running.batch_id,
                running_op=None if slot.running is None else slot.running.op,
                resident=self.replicas.resident(slot.executor),
                num_loads=slot.num_loads,
            )
            for slot in self.executors
        }

    def forecast(self, graph: Graph) -> Forecast:
        """What a request with this graph would meet; nothing changes."""
        resident = [self.replicas.resident(slot.executor) for slot in self.executors]
        return forecast(graph, self.requests.values(), resident, self.profiles)

    def running_order(self) -> tuple[RequestId, ...]:
        """The live requests that have started, in scheduler order."""
        started = (request for request in self.requests.values() if request.is_started)
        ordered = sorted(started, key=lambda request: (request.number, request.request_id))
        return tuple(request.request_id for request in ordered)

    def _take_in(self, event: AnyEvent, now_s: float) -> None:
        match event:
            case RequestArrived():
                self._arrive(event)
            case RequestCancelled():
                self._cancel(event)
            case GraphGrown() | GrowthFailed():
                self._grow(event)
            case ExecutorJoined():
                self._join(event)
            case ExecutorLost():
                self._lose(event.executor, event.incarnation, event.begun)
            case BatchReported():
                self._report(event, now_s)
            case ModelsDropped():
                for slot in self.executors:
                    slot.is_drop_wanted = True
                    self._drop_if_idle(slot)
            case _:
                assert_never(event)

    # requests -----------------------------------------------------------------------------------

    def _arrive(self, event: RequestArrived) -> None:
        if event.request_id in self.requests:
            raise InvariantBroken(
                f"request {event.request_id} has arrived twice", request_id=event.request_id
            )
        request = RequestState(
            event.request_id, event.number, self.ready, self.tensors, self.profiles, self.loops
        )
        self.requests[event.request_id] = request
        request.settle(request.extend(event.graph))
        self._ask(request)
        self._endings.end_if_done(request)

    def _cancel(self, event: RequestCancelled) -> None:
        request = self.requests.get(event.request_id)
        if request is not None:
            self._endings.begin(request, Ending(Outcome.INTERRUPTED, request.first_open()))

    def _grow(self, event: GraphGrown | GrowthFailed) -> None:
        request = self.requests.get(event.request_id)
        if request is None or request.ending is not None:
            return  # ended while the compiler was at work
        if isinstance(event, GrowthFailed):
            self._fail(request, event.pending_id, event.error)
            return
        request.settle(request.extend(event.graph))
        self._reset(reopen_producers(request))
        if not request.growth.pending:
            request.retire_unwanted()
        self._ask(request)
        self._endings.end_if_done(request)

    def _ask(self, request: RequestState) -> None:
        """Have the compiler lower a pending node whose values have come."""
        if not request.growth.pending or request.ending is not None:
            return
        question = next_question(request)
        if isinstance(question, LowerPending):
            self._actions.append(question)
        elif isinstance(question, GrowthStuck):
            self._fail(request, question.pending_id, question.error)

    def _fail(self, request: RequestState, node_id: NodeId, error: ErrorReport) -> None:
        self._endings.begin(request, Ending(Outcome.ERROR, node_id, error))

    def _reset(self, states: Iterable[NodeState]) -> None:
        for state in states:
            self._actions.append(
                NodeReset(request_id=state.request.request_id, node_id=state.node.id)
            )

    # executors ----------------------------------------------------------------------------------

    def _join(self, event: ExecutorJoined) -> None:
        executor, incarnation = event.executor, event.incarnation
        if self.executors.is_dead(executor, incarnation):
            return  # it was given up: what it ran went elsewhere, what it held is forgotten
        if self.executors.is_alive(executor, incarnation):
            return
        if executor in self.executors:
            self._lose(executor, self.executors[executor].incarnation)
        self.executors.join(executor, incarnation)

    def _lose(self, executor: ExecutorId, incarnation: str, begun: BatchId | None = None) -> None:
        if not self.executors.is_alive(executor, incarnation):
            return
        slot = self.executors.remove(executor)
        self.replicas.forget(executor)
        batches, fatal = slot.batches(), slot.died_in(begun)
        # Values first: a node that was running there must not become ready on inputs that are gone.
        hurt = {
            request.request_id: request
            for request in self.requests.values()
            if lose_values(request, lambda value: value.dies_with(executor, incarnation))
        }
        for batch in batches:
            for call in batch.calls:
                self._stop_reading(call)
                hurt[call.state.request.request_id] = call.state.request
                if batch is fatal:
                    self._count_death(call.state)
                is_told = batch is slot.running or batch.is_announced
                self._give_back(call.state, is_told=is_told)
        for request in hurt.values():
            if request.ending is None:
                self._reset(reopen_producers(request))
        self.tensors.bury(executor, incarnation)

    def _count_death(self, state: NodeState) -> None:
        """A node's executor died under it."""
        state.num_deaths += 1
        if state.request.ending is None and state.num_deaths >= self.config.max_attempts:
            self._fail(state.request, state.node.id, poisoned(state))

    def _give_back(self, state: NodeState, *, is_told: bool = True) -> None:
        """A node that was sent came to nothing: it runs again, unless its request is over."""
        request = state.request
        if request.ending is None:
            request.run_again(state)
            self._reset([state] if is_told else [])
        else:
            request.drop_running(state)
            self._endings.end_if_free(request)

    def _drop_if_idle(self, slot: ExecutorSlot) -> None:
        if slot.is_drop_wanted and slot.running is None:
            slot.is_drop_wanted = False
            self.replicas.forget(slot.executor)
            self._actions.append(Drop(executor=slot.executor))

    # reports ------------------------------------------------------------------------------------

    def _report(self, event: BatchReported, now_s: float) -> None:
        if not self.executors.is_alive(event.executor, event.incarnation):
            return
        slot = self.executors[event.executor]
        batch = slot.find(event.batch_id)
        if batch is None:
            return  # reported before
        if len(event.results) != len(batch.calls):
            raise InvariantBroken(
                f"executor {event.executor} gave {len(event.results)} results for the "
                f"{len(batch.calls)} calls of batch {event.batch_id}"
            )
        slot.take_out(batch, now_s)
        slot.num_loads += len(event.loaded)
        self.replicas.report(event.executor, event.resident, event.switched)
        learn(self.profiles, batch, event)
        if any(not isinstance(result, CallCancelled) for result in event.results):
            self._sender.announce(batch, slot)  # it had begun when it was recalled
        for call, result in zip(batch.calls, event.results, strict=True):
            self._stop_reading(call)
            self._settle(call, result, slot, batch)
        self._go_on(slot, event.results)
        self._drop_if_idle(slot)

    def _go_on(self, slot: ExecutorSlot, results: Sequence[CallResult]) -> None:
        """The executor turns to the rest of its chain, if it has one."""
        if not all(isinstance(result, CallDone) for result in results):
            for later in slot.later:  # they need what was not made
                later.is_recalled = True
            if slot.running is not None:
                slot.running.is_recalled = True
        if slot.running is not None and not slot.running.is_recalled:
            self._sender.announce(slot.running, slot)

    def _stop_reading(self, call: RunningCall) -> None:
        for value in call.inputs.values():
            self.tensors.stop_reading(value)

    def _settle(
        self, call: RunningCall, result: CallResult, slot: ExecutorSlot, batch: RunningBatch
    ) -> None:
        state = call.state
        if state.request.ending is not None:
            if isinstance(result, CallDone):
                self._discard(state, result, slot)
            self._give_back(state)
            return
        match result:
            case CallDone():
                self._finish(state, result, slot)
            case CallFailed():
                self._fail(state.request, state.node.id, result.error)
                self._give_back(state)
            case CallLost():
                self._miss(call, result)
            case CallCancelled() if batch.is_orphaned or batch.is_recalled:
                # No fault of its own: it does not count.
                self._give_back(state, is_told=batch.is_announced)
                self._reset(reopen_producers(state.request))
            case CallCancelled():  # nobody asked for that: the executor is about to go
                self._retry(state)
            case _:
                assert_never(result)

    def _finish(self, state: NodeState, result: CallDone, slot: ExecutorSlot) -> None:
        request = state.request
        if len(result.outputs) != len(state.node.outputs):
            self._discard(state, result, slot)
            self._fail(request, state.node.id, wrong_outputs(state, len(result.outputs)))
            self._give_back(state)
            return
        request.finish(state, self._chains.take(state, slot, result.outputs))
        self._deferred.provide(state)
        self._actions.append(
            NodeFinished(
                request_id=request.request_id,
                node_id=state.node.id,
                executor=slot.executor,
                ui=result.ui,
                preview=result.preview,
            )
        )
        self._ask(request)
        self._endings.end_if_done(request)

    def _discard(self, state: NodeState, result: CallDone, slot: ExecutorSlot) -> None:
        """Nobody wants what a call gave: it goes once nothing in its chain reads it."""
        for value in self._chains.take(state, slot, result.outputs):
            self.tensors.retire(value)

    def _miss(self, call: RunningCall, result: CallLost) -> None:
        """Inputs of a call could not be fetched: those that are still the current ones are lost."""
        missing = frozenset(result.missing)
        request = call.state.request
        lose_values(
            request,
            lambda value: value in call.inputs.values() and not missing.isdisjoint(value.keys),
        )
        self._retry(call.state)

    def _retry(self, state: NodeState) -> None:
        request = state.request
        state.num_lost += 1
        if state.num_lost > self.config.max_lost:
            self._fail(request, state.node.id, inputs_lost(state))
        self._give_back(state)
        if request.ending is None:
            self._reset(reopen_producers(request))
