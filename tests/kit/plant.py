"""A scheduler among simulated executors, whose stores of tensors are watched all the time.

After every event the scheduler's invariants are checked, and so is what it asks for: no executor
gets two batches, none is sent a tensor that can't be fetched any more, a tensor is released once
and not while a batch reads it, a request starts and ends once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kit.checkpoint_files import CheckpointFiles
from kit.worker import Worker, stored_keys
from nodeloom.graph_import.handles import ModelRef
from nodeloom.graph_import.ir import Graph, Node, NodeId
from nodeloom.runtime.ids import BatchId, ExecutorId, RequestId
from nodeloom.runtime.protocol import (
    AwaitedValue,
    CallCancelled,
    CallDone,
    CallFailed,
    CallLost,
    CallResult,
    ErrorReport,
    NodeCall,
    RunBatch,
    TensorKey,
)
from nodeloom.runtime.scheduler.actions import (
    AnyAction,
    CancelSent,
    Drop,
    DropCheckpoints,
    LowerPending,
    NodeFinished,
    NodeReset,
    NodeStarted,
    Provide,
    Recall,
    Release,
    RequestEnded,
    RequestStarted,
    SendBatch,
    SweepCheckpoints,
)
from nodeloom.runtime.scheduler.events import (
    AnyEvent,
    BatchReported,
    ExecutorJoined,
    ExecutorLost,
    GraphGrown,
    RequestArrived,
    RequestCancelled,
)
from nodeloom.runtime.scheduler.invariants import check_scheduler
from nodeloom.runtime.scheduler.scheduler import Scheduler, SchedulerConfig


class Plant:
    """Drives one scheduler, without chains or checkpoints unless told.

    `log` has every event with its answer.
    """

    def __init__(
        self,
        config: SchedulerConfig | None = None,
        *,
        is_checked: bool = True,
        files: CheckpointFiles | None = None,
    ) -> None:
        self.scheduler = Scheduler(config or SchedulerConfig(max_ahead=0))
        self.is_checked = is_checked
        self.files = files or CheckpointFiles()
        self.now_s = 0.0
        self.workers: dict[ExecutorId, Worker] = {}
        self.gone: list[Worker] = []
        self.nodes: dict[RequestId, dict[NodeId, Node]] = {}
        self.started: list[RequestId] = []
        self.ended: dict[RequestId, RequestEnded] = {}
        self.questions: list[LowerPending] = []
        self.log: list[tuple[AnyEvent, float, list[AnyAction]]] = []
        self._incarnations = 0
        self._sent: dict[str, list[BatchId]] = {}  # by incarnation: sent, and not heard of yet

    # events -------------------------------------------------------------------------------------

    def happen(self, event: AnyEvent, *, after_s: float = 0.01) -> list[AnyAction]:
        """Give the scheduler an event `after_s` later than the last one, and obey it."""
        self.now_s += after_s
        if isinstance(event, ExecutorLost):
            self._forget(event.executor, event.incarnation)
        if isinstance(event, BatchReported) and event.batch_id in self._sent[event.incarnation]:
            self._sent[event.incarnation].remove(event.batch_id)
        actions = self.scheduler.on_event(event, self.now_s)
        self.log.append((event, self.now_s, actions))
        for action in actions:
            self._obey(action)
        if self.is_checked:
            check_scheduler(self.scheduler)
        return actions

    def arrive(self, name: str, graph: Graph, *, number: float = 0.0) -> list[AnyAction]:
        request_id = RequestId(name)
        self.nodes[request_id] = graph.by_id()
        return self.happen(RequestArrived(request_id=request_id, number=number, graph=graph))

    def grow(self, name: str, graph: Graph) -> list[AnyAction]:
        """The compiler has lowered the request's graph again."""
        request_id = RequestId(name)
        self.nodes[request_id] = graph.by_id()
        return self.happen(GraphGrown(request_id=request_id, graph=graph))

    def cancel(self, name: str) -> list[AnyAction]:
        return self.happen(RequestCancelled(request_id=RequestId(name)))

    def join(self, name: str) -> list[AnyAction]:
        """A new process says hello; one of that name that is still there is replaced by it."""
        executor = ExecutorId(name)
        self._incarnations += 1
        incarnation = f"i{self._incarnations}"
        if executor in self.workers:
            self._forget(executor, self.workers[executor].incarnation)
        self.workers[executor] = Worker(executor, incarnation)
        return self.happen(ExecutorJoined(executor=executor, incarnation=incarnation))

    def lose(self, name: str, begun: BatchId | None = None) -> list[AnyAction]:
        worker = self.workers[ExecutorId(name)]
        lost = ExecutorLost(
            executor=worker.executor, incarnation=worker.incarnation, reason="killed", begun=begun
        )
        return self.happen(lost)

    def report(
        self,
        name: str,
        *,
        result: Callable[[NodeCall], CallResult] | None = None,
        run_s: float = 0.1,
        load_s: float = 1.0,
        switch_s: float = 0.1,
        after_s: float = 0.1,
    ) -> list[AnyAction]:
        """The executor finishes its batch: with success, unless `result` says otherwise."""
        return self.happen(
            self.finish(name, result=result, run_s=run_s, load_s=load_s, switch_s=switch_s),
            after_s=after_s,
        )

    def finish(
        self,
        name: str,
        *,
        result: Callable[[NodeCall], CallResult] | None = None,
        run_s: float = 0.1,
        load_s: float = 1.0,
        switch_s: float = 0.1,
    ) -> BatchReported:
        """The report of the executor's batch, which is on its way then."""
        worker = self.workers[ExecutorId(name)]
        batch = worker.batch
        assert batch is not None, f"{name} runs nothing"
        loaded, switched = worker.take_model(batch.model, load_s, switch_s)
        results = [self._result(worker, call, result or self.succeed(name)) for call in batch.calls]
        worker.note(batch, results)
        return BatchReported(
            executor=worker.executor,
            incarnation=worker.incarnation,
            batch_id=batch.batch_id,
            results=tuple(results),
            resident=tuple(worker.resident),
            loaded=loaded,
            run_s=run_s + load_s * len(loaded) + switch_s * len(switched),
            switched=switched,
        )

    def teach_batches(self, op: str, ref: ModelRef, *sizes: int) -> None:
        """Such batches of calls without inputs were measured: they take little more than one."""
        costs = self.scheduler.profiles.batches(op, ref.key, ())
        for size in (1, *sizes):
            for _ in range(2):  # the first one says nothing
                costs.learn(size, 0.1 + 0.001 * size, "elsewhere")

    def fetch(self, name: str) -> None:
        """The executor fetches its batch's inputs from the others, as far as they have them."""
        worker = self.workers[ExecutorId(name)]
        for call in worker.batch.calls if worker.batch else ():
            for key in stored_keys(worker.values(call)):
                if self._is_held(key):
                    worker.store.add(key)

    def succeed(self, name: str) -> Callable[[NodeCall], CallResult]:
        """Every call gives one value per port: a scalar, an inline tensor or a stored one."""
        worker = self.workers[ExecutorId(name)]

        def result(call: NodeCall) -> CallResult:
            node = self.nodes[call.request_id][call.node_id]
            return CallDone(
                outputs=tuple(
                    worker.make(out.type, self.files.save if port in call.checkpoints else None)
                    for port, out in enumerate(node.outputs)
                ),
                ui=None,
                preview=None,
            )

        return result

    # what is to be seen -------------------------------------------------------------------------

    def running(self, name: str) -> list[str]:
        """What an executor runs, as `request/node`."""
        batch = self.workers[ExecutorId(name)].batch
        return names(batch) if batch else []

    def busy(self) -> list[str]:
        """The executors that have a batch and can end it."""
        return [n for n, worker in self.workers.items() if worker.batch and not worker.is_waiting]

    def waiting(self) -> list[str]:
        """The executors whose batch can't go on before a value comes."""
        return [name for name, worker in self.workers.items() if worker.is_waiting]

    def run_all(self) -> None:
        """Report whatever runs, with success, until nothing runs any more."""
        while busy := self.busy():
            self.report(busy[0])

    def outcome(self, name: str) -> str:
        return self.ended[RequestId(name)].outcome

    def assert_empty(self) -> None:
        """Every request has ended and every executor holds nothing."""
        assert set(self.ended) == set(self.nodes)
        held = {name: worker.known for name, worker in self.workers.items() if worker.known}
        assert not held, f"never released: {held}"
        assert not self.scheduler.requests
        assert not self.files.names, "never deleted"

    # what is asked for --------------------------------------------------------------------------

    def _obey(self, action: AnyAction) -> None:
        match action:
            case SendBatch() | Provide() | CancelSent() | Recall() | Release() | Drop():
                self._obey_there(action)
            case DropCheckpoints() | SweepCheckpoints():
                self.files.obey(action, self._keys_in_use())
            case LowerPending():
                assert action.request_id not in self.ended
                self.questions.append(action)
            case RequestStarted():
                assert action.request_id not in self.started
                self.started.append(action.request_id)
            case NodeStarted() | NodeFinished() | NodeReset():
                assert action.request_id in self.started
                assert action.request_id not in self.ended
            case RequestEnded():
                assert action.request_id not in self.ended
                self.ended[action.request_id] = action

    def _obey_there(
        self, action: SendBatch | Provide | CancelSent | Recall | Release | Drop
    ) -> None:
        """What an executor is told."""
        worker = self.workers[action.executor]
        match action:
            case SendBatch():
                self._receive(action)
            case Provide():
                self._provide(action)
            case CancelSent():
                assert action.batch_id not in worker.cancelled
                worker.cancelled.add(action.batch_id)
            case Recall():
                assert worker.recalled.isdisjoint(action.batch_ids)
                # What runs by now has begun.
                begun = [batch.batch_id for batch in worker.batches[:1]]
                worker.recalled.update(set(action.batch_ids).difference(begun))
            case Release():
                self._release(worker, action.keys)
            case Drop():
                assert worker.batch is None
                worker.resident.clear()

    def _receive(self, action: SendBatch) -> None:
        worker = self.workers[action.executor]
        sent = self._sent.setdefault(worker.incarnation, [])
        assert action.batch.after == (sent[-1] if sent else None)
        sent.append(action.batch.batch_id)
        assert len(action.hidden) == len(action.batch.calls)
        for call in action.batch.calls:
            assert call.request_id not in self.ended
            given = [item.value for item in call.inputs]
            for value in given:
                if isinstance(value, AwaitedValue):
                    self._assert_made(value, action.batch, worker)
            for key in stored_keys(v for v in given if not isinstance(v, AwaitedValue)):
                is_there = self._is_held(key) or self.files.had(key)
                assert is_there, f"{call.node_id} was sent {key}, which is gone"
                worker.known.add(key)
        worker.batches.append(action.batch)

    def _assert_made(self, value: AwaitedValue, batch: RunBatch, worker: Worker) -> None:
        """What is awaited is made by another executor, or by an earlier batch of the chain."""
        name = f"{value.request_id}/{value.node_id}"
        makers = [w for w in self.workers.values() if any(name in names(b) for b in w.batches)]
        assert len(makers) <= 1, f"{name} is awaited and run by {len(makers)} executors"
        if batch.after is None:
            assert worker not in makers, f"{name} is awaited where it runs"
        elif value not in worker.arrived and worker.batches and not worker.is_stopped:
            assert worker in makers, f"{name} is awaited in a chain that does not make it"

    def _provide(self, action: Provide) -> None:
        worker = self.workers[action.executor]
        assert action.batch_id not in worker.cancelled
        if worker.batch is not None and worker.batch.batch_id == action.batch_id:
            assert action.awaited not in worker.arrived, f"{action.awaited} was provided twice"
            inputs = [item.value for call in worker.batch.calls for item in call.inputs]
            assert action.awaited in inputs
            worker.arrived[action.awaited] = action.value
        for key in stored_keys([action.value]):
            assert self._is_held(key) or self.files.had(key), f"{key} was provided, and is gone"
            worker.known.add(key)

    def _release(self, worker: Worker, keys: Sequence[TensorKey]) -> None:
        in_use = self._keys_in_use() if self.is_checked else frozenset()
        for key in keys:
            assert key in worker.known, f"{worker.executor} never had {key}, or released it before"
            assert key not in in_use, f"{key} was released while a batch reads it"
            worker.known.remove(key)
            worker.store.discard(key)
        self.files.release(worker.made_here(keys))

    def _keys_in_use(self) -> frozenset[TensorKey]:
        return frozenset(
            key
            for worker in self.workers.values()
            for batch in worker.batches
            if batch.batch_id not in worker.cancelled | worker.recalled
            for call in batch.calls
            for key in stored_keys(worker.values(call))
        )

    def _is_held(self, key: TensorKey) -> bool:
        worker = self.workers.get(key.executor)
        is_alive = worker is not None and worker.incarnation == key.incarnation
        return (is_alive and key in worker.store) or self.files.has(key)

    def _forget(self, executor: ExecutorId, incarnation: str) -> None:
        worker = self.workers.get(executor)
        if worker is not None and worker.incarnation == incarnation:
            self.gone.append(self.workers.pop(executor))

    def _result(
        self, worker: Worker, call: NodeCall, result: Callable[[NodeCall], CallResult]
    ) -> CallResult:
        if worker.is_stopped:
            return CallCancelled()
        wanted = list(stored_keys(worker.values(call)))
        missing = [key for key in wanted if key not in worker.store and not self._is_held(key)]
        if missing:
            return CallLost(missing=tuple(missing))
        worker.store.update(wanted)
        return result(call)


def fail(_: NodeCall | None) -> CallResult:
    """The result of a call whose op raises."""
    return CallFailed(
        error=ErrorReport(
            code="node_failed",
            exception_type="ValueError",
            message="boom",
            traceback=(),
            current_inputs={},
        )
    )


def names(batch: RunBatch) -> list[str]:
    """The calls of a batch as `request/node`."""
    return [f"{call.request_id}/{call.node_id}" for call in batch.calls]


def sends(actions: Iterable[AnyAction]) -> list[tuple[str, list[str]]]:
    """The batches in an answer: executor and calls."""
    return [(a.executor, names(a.batch)) for a in actions if isinstance(a, SendBatch)]


def resets(actions: Iterable[AnyAction]) -> list[str]:
    """The nodes that an answer runs again, as `request/node`."""
    return [f"{a.request_id}/{a.node_id}" for a in actions if isinstance(a, NodeReset)]
