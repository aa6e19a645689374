"""Hypothesis drives the scheduler through everything that may happen, in any order.

After every event `check_scheduler` holds and the plant watches the executors' stores; at the end,
with a healthy executor, every request has ended once and every tensor was released once.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import msgspec
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from kit.checkpoint_files import CheckpointFiles
from kit.graphs import graph, model, node, patched, pending
from kit.loops import sampled
from kit.plant import Plant, fail
from nodeloom.graph_import.handles import Role
from nodeloom.graph_import.ir import Graph, Node
from nodeloom.graph_import.types import INT, LATENT, MASK, SAMPLER_STATE
from nodeloom.runtime.ids import BatchId, RequestId
from nodeloom.runtime.protocol import (
    CallCancelled,
    CallDone,
    CallResult,
    ErrorReport,
    NodeCall,
    ScalarValue,
)
from nodeloom.runtime.scheduler.actions import LowerPending
from nodeloom.runtime.scheduler.events import (
    AnyEvent,
    BatchReported,
    ExecutorJoined,
    ExecutorLost,
    GrowthFailed,
    ModelsDropped,
    RequestCancelled,
)
from nodeloom.runtime.scheduler.scheduler import Scheduler, SchedulerConfig

EXECUTORS = ("e0", "e1", "e2", "e3")
MODELS = (
    model("a", size_bytes=10**8),
    patched(model("a", size_bytes=10**8), "lora"),
    model("b", Role.VAE, size_bytes=10**7),
)
CONTROL = model("c", Role.CONTROLNET, size_bytes=10**7)
OPS = [
    ("denoise", MODELS[0]),
    ("denoise", MODELS[1]),
    ("vae_decode", MODELS[2]),
    ("image_scale", None),
]
GIVES = [(LATENT,), (LATENT,), (LATENT, INT), (INT,), (SAMPLER_STATE,), (MASK, LATENT), ()]
MANY_EVENTS = 100_000  # more than any run can need; reaching it is a livelock


@st.composite
def nodes_of_graphs(draw: st.DrawFn) -> list[Node]:
    """Up to 8 nodes in topological order, with and without models, of any shape."""
    nodes: list[Node] = []
    ports: list[tuple[str, int]] = []
    for i in range(draw(st.integers(1, 8))):
        op, ref = draw(st.sampled_from(OPS))
        reads = draw(st.lists(st.sampled_from(ports), max_size=3)) if ports else []
        deferred = draw(st.sets(st.sampled_from("abc"[: len(reads)]))) if reads else set()
        gives = draw(st.sampled_from(GIVES))
        name = f"n{i}"
        nodes.append(node(name, op, ref=ref, reads=reads, gives=gives, deferred=deferred))
        ports += [(name, port) for port in range(len(gives))]
    return nodes


@st.composite
def stages_of_graphs(draw: st.DrawFn) -> list[Graph]:
    """A graph as it is known at first, and after each growth; often whole from the start."""
    nodes = draw(nodes_of_graphs())
    read = {edge.source for item in nodes for _, edge in item.inputs}
    unread = [item.id for item in nodes if item.id not in read]
    sinks = draw(st.lists(st.sampled_from(unread), min_size=1, unique=True))
    sinks += draw(st.lists(st.sampled_from([item.id for item in nodes]), max_size=1))
    sinks = list(dict.fromkeys(sinks))
    whole = graph(*nodes, sinks=sinks)
    stages = [whole]
    for i in range(draw(st.integers(0, 2))):
        known = _with_ancestors(draw(st.lists(st.sampled_from(stages[0].nodes))), stages[0])
        ports = [(n.id, port) for n in known for port in range(len(n.outputs))]
        scalars = [(n, p) for n, p in ports if whole.by_id()[n].outputs[p].type == INT]
        wanted = draw(st.sampled_from([scalars, scalars, scalars, ports]))
        if not wanted:
            continue
        waits_for = draw(st.sampled_from(wanted))
        ids = {item.id for item in known}
        stages.insert(
            0,
            graph(
                *known,
                sinks=[s for s in sinks if s in ids],
                pending=[pending(f"p{i}", waits_for), pending(f"q{i}")],
            ),
        )
    return stages


@st.composite
def loops(draw: st.DrawFn) -> list[Graph]:
    """What most requests are: steps of one model, with a ControlNet or none, and a picture."""
    return [
        sampled(
            draw(st.integers(2, 6)),
            draw(st.sampled_from(MODELS[:2])),
            vae=draw(st.sampled_from([None, MODELS[2]])),
            controls=[CONTROL] * draw(st.sampled_from([0, 0, 1])),
        )
    ]


def _with_ancestors(chosen: list[Node], whole: Graph) -> list[Node]:
    wanted = {item.id for item in chosen}
    for item in reversed(whole.nodes):
        if item.id in wanted:
            wanted |= {edge.source for _, edge in item.inputs}
    return [item for item in whole.nodes if item.id in wanted]


class SchedulerMachine(RuleBasedStateMachine):
    """Everything that may happen to a scheduler, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.plant = Plant()
        self.stages: dict[RequestId, list[Graph]] = {}
        self.on_the_way: list[BatchReported] = []

    @initialize(
        is_strict=st.booleans(),
        max_batch=st.integers(1, 4),
        max_attempts=st.integers(1, 3),
        max_lost=st.integers(0, 3),
        max_ahead=st.sampled_from([0, 1, 2, 16]),
        num_executors=st.integers(0, 3),
        written=st.lists(st.booleans(), min_size=1, max_size=3),
    )
    def configure(
        self,
        is_strict: bool,
        max_batch: int,
        max_attempts: int,
        max_lost: int,
        max_ahead: int,
        num_executors: int,
        written: list[bool],
    ) -> None:
        self.plant = Plant(
            SchedulerConfig(
                is_strict=is_strict,
                max_batch=max_batch,
                max_attempts=max_attempts,
                max_lost=max_lost,
                max_ahead=max_ahead,
            ),
            files=CheckpointFiles(written),
        )
        for name in EXECUTORS[:num_executors]:
            self.plant.join(name)

    @rule(data=st.data())
    def trouble(self, data: st.DataObject) -> None:
        """One rule for all of it, so that most steps are work."""
        data.draw(st.sampled_from(TROUBLES))(self, data)

    def executor_joins(self, data: st.DataObject) -> None:
        self.plant.join(data.draw(st.sampled_from(EXECUTORS)))

    def executor_is_lost(self, data: st.DataObject) -> None:
        if self.plant.workers:
            name = data.draw(st.sampled_from(sorted(self.plant.workers)))
            sent = [batch.batch_id for batch in self.plant.scheduler.executors[name].batches()]
            self.plant.lose(name, data.draw(st.sampled_from([None, BatchId(0), *sent])))

    def request_is_cancelled(self, data: st.DataObject) -> None:
        if self.stages:
            request_id = data.draw(st.sampled_from(sorted(self.stages)))
            self.plant.happen(RequestCancelled(request_id=request_id))

    def executor_repeats_itself(self, data: st.DataObject) -> None:
        """An old report, an old hello of a dead incarnation or an old loss is heard again."""
        said = [event for event, _, _ in self.plant.log if self._is_stale(event)]
        if said:
            self.plant.happen(data.draw(st.sampled_from(said)))

    def models_are_dropped(self, _: st.DataObject) -> None:
        self.plant.happen(ModelsDropped())

    def checkpoint_vanishes(self, data: st.DataObject) -> None:
        if self.plant.files.names:
            self.plant.files.vanish(data.draw(st.sampled_from(sorted(self.plant.files.names))))

    @rule(stages=st.one_of(stages_of_graphs(), loops()), number=st.integers(-1, 1))
    def request_arrives(self, stages: list[Graph], number: int) -> None:
        name = f"r{len(self.stages)}"
        self.stages[RequestId(name)] = stages[1:] or stages
        self.plant.arrive(name, stages[0], number=float(number))

    @precondition(lambda self: self.plant.busy())
    @rule(num_reports=st.integers(1, 5))
    def work_goes_on(self, num_reports: int) -> None:
        for _ in range(num_reports):
            if busy := self.plant.busy():
                self.plant.report(busy[0])

    @precondition(lambda self: self.plant.busy())
    @rule(data=st.data())
    def inputs_are_fetched(self, data: st.DataObject) -> None:
        self.plant.fetch(data.draw(st.sampled_from(self.plant.busy())))

    @precondition(lambda self: self.plant.busy())
    @rule(data=st.data())
    def batch_is_finished(self, data: st.DataObject) -> None:
        # One that waits may be done as well: an op need not use all that it is given.
        names = [name for name, worker in self.plant.workers.items() if worker.batch]
        name = data.draw(st.sampled_from(names))
        result = _any_result(data, self.plant.succeed(name))
        run_s = data.draw(st.sampled_from([0.001, 0.1, 3.0]))
        self.on_the_way.append(self.plant.finish(name, result=result, run_s=run_s))

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data())
    def report_arrives(self, data: st.DataObject) -> None:
        # Those of one executor come in the order in which it sent them.
        first = {event.incarnation: event for event in reversed(self.on_the_way)}
        event = first[data.draw(st.sampled_from(sorted(first)))]
        self.on_the_way.remove(event)
        self.plant.happen(event)

    @precondition(lambda self: self.plant.questions)
    @rule(does_succeed=st.sampled_from([True, True, True, False]))
    def compiler_answers(self, does_succeed: bool) -> None:
        question = self.plant.questions.pop(0)
        if does_succeed:
            self._grow(question)
            return
        error = ErrorReport(
            code="import_rejected",
            exception_type="ImportRejected",
            message="no",
            traceback=(),
            current_inputs={},
        )
        self.plant.happen(
            GrowthFailed(
                request_id=question.request_id, pending_id=question.pending_id, error=error
            )
        )

    def teardown(self) -> None:
        """A healthy executor ends everything that is left; then nothing is held any more."""
        self.plant.join("healthy")
        for _ in range(MANY_EVENTS):
            if self.on_the_way:
                self.plant.happen(self.on_the_way.pop(0))
            elif self.plant.questions:
                self._grow(self.plant.questions.pop(0))
            elif busy := self.plant.busy():
                self.plant.report(busy[0])
            else:
                break
        self.plant.assert_empty()
        self._check_replay()

    def _is_stale(self, event: AnyEvent) -> bool:
        """Whether an executor may well have said that, and saying it again means nothing."""
        if isinstance(event, ExecutorLost):
            worker = self.plant.workers.get(event.executor)
            return worker is None or worker.incarnation != event.incarnation
        return isinstance(event, BatchReported | ExecutorJoined)

    def _grow(self, question: LowerPending) -> None:
        stages = self.stages[question.request_id]
        # The last one again if there is none left: a compiler that gets no further.
        self.plant.grow(question.request_id, stages.pop(0) if len(stages) > 1 else stages[0])

    def _check_replay(self) -> None:
        """The same events give the same actions, to the byte."""
        replayed = Scheduler(self.plant.scheduler.config)
        for event, now_s, actions in self.plant.log:
            again = replayed.on_event(event, now_s)
            assert msgspec.msgpack.encode(again) == msgspec.msgpack.encode(actions)


def _any_result(
    data: st.DataObject, succeed: Callable[[NodeCall], CallResult]
) -> Callable[[NodeCall], CallResult]:
    """Mostly success; else an op that raises, gives too much, or was stopped by its executor."""

    def result(call: NodeCall) -> CallResult:
        kind = data.draw(st.sampled_from(["done"] * 15 + ["cancelled"] * 2 + ["failed", "long"]))
        if kind == "failed":
            return fail(call)
        if kind == "cancelled":
            return CallCancelled()
        done = succeed(call)
        if kind == "long" and isinstance(done, CallDone):
            outputs = (*done.outputs, ScalarValue(value=1))
            return CallDone(outputs=outputs, ui=None, preview=None)
        return done

    return result


TROUBLES = (
    SchedulerMachine.executor_joins,
    SchedulerMachine.executor_joins,
    SchedulerMachine.executor_is_lost,
    SchedulerMachine.executor_is_lost,
    SchedulerMachine.request_is_cancelled,
    SchedulerMachine.executor_repeats_itself,
    SchedulerMachine.models_are_dropped,
    SchedulerMachine.checkpoint_vanishes,
)

SchedulerMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestSchedulerMachine = SchedulerMachine.TestCase
