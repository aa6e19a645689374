"""`check_scheduler` finds a scheduler that contradicts itself, and says how."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kit.graphs import chain, graph, model, node
from kit.plant import Plant
from nodeloom.graph_import.ir import NodeId
from nodeloom.runtime.errors import InvariantBroken
from nodeloom.runtime.ids import ExecutorId, RequestId
from nodeloom.runtime.scheduler.actions import Outcome
from nodeloom.runtime.scheduler.invariants import check_scheduler
from nodeloom.runtime.scheduler.node_state import NodeState, NodeStatus
from nodeloom.runtime.scheduler.request_state import Ending, RequestState
from nodeloom.runtime.scheduler.scheduler import Scheduler, SchedulerConfig

A, X, Y, Z = RequestId("a"), NodeId("x"), NodeId("y"), NodeId("z")
GPU0 = ExecutorId("gpu0")


@pytest.fixture
def scheduler() -> Scheduler:
    """a: x is done, y reads it and runs on gpu0, z waits. b: ready for gpu0, while gpu1 idles."""
    plant = Plant()
    plant.join("gpu0")
    ref = model("m", size_bytes=10**12)
    nodes = [
        node("x", "denoise", ref=ref),
        node("y", "denoise", ref=ref, reads=["x"]),
        node("z", "op_z", reads=["y", "x"]),
    ]
    plant.arrive("a", graph(*nodes))
    plant.report("gpu0")
    plant.join("gpu1")
    plant.arrive("b", chain(1, ref), number=1.0)
    assert plant.running("gpu0") == ["a/y"]
    return plant.scheduler


def state(scheduler: Scheduler, node_id: NodeId) -> NodeState:
    return scheduler.requests[A].nodes[node_id]


def request_of(scheduler: Scheduler) -> RequestState:
    return scheduler.requests[A]


def forget_the_batch(scheduler: Scheduler) -> None:
    scheduler.executors[GPU0].running = None


def lose_a_value_that_is_waited_for(scheduler: Scheduler) -> None:
    del request_of(scheduler).values[X, 0]


def keep_a_value_that_nobody_reads(scheduler: Scheduler) -> None:
    request = request_of(scheduler)
    request.values[Z, 0] = request.values[X, 0]


def retire_a_value_that_is_waited_for(scheduler: Scheduler) -> None:
    request_of(scheduler).values[X, 0].is_retired = True


def count_a_reader_too_many(scheduler: Scheduler) -> None:
    request_of(scheduler).values[X, 0].num_readers += 1


def count_a_running_reader_too_few(scheduler: Scheduler) -> None:
    request_of(scheduler).values[X, 0].num_running -= 1


def forget_a_holder(scheduler: Scheduler) -> None:
    request_of(scheduler).values[X, 0].holders.clear()


def let_a_holder_die_unnoticed(scheduler: Scheduler) -> None:
    scheduler.executors[GPU0].incarnation = "another"


def forget_a_file(scheduler: Scheduler) -> None:
    request_of(scheduler).values[X, 0].checkpoints = ("gpu0.i1.1",)


def make_a_waiting_node_ready(scheduler: Scheduler) -> None:
    state(scheduler, Z).status = NodeStatus.READY


def drop_a_node_of_a_request_that_goes_on(scheduler: Scheduler) -> None:
    state(scheduler, Z).status = NodeStatus.DROPPED


def run_a_node_elsewhere(scheduler: Scheduler) -> None:
    state(scheduler, Y).executor = ExecutorId("gpu1")


def leave_a_finished_request_alive(scheduler: Scheduler) -> None:
    request_of(scheduler).sinks = frozenset()
    request_of(scheduler).open_sinks = set()


def end_with_values_held(scheduler: Scheduler) -> None:
    state(scheduler, Z).status = NodeStatus.DROPPED
    request_of(scheduler).ending = Ending(Outcome.INTERRUPTED)


def take_a_ready_node_out_of_the_queue(scheduler: Scheduler) -> None:
    scheduler.ready.remove(scheduler.requests[RequestId("b")].nodes[NodeId("s0")])


def spoil_the_order_of_the_queue(scheduler: Scheduler) -> None:
    (group,) = scheduler.ready.groups()
    group.nodes.append(state(scheduler, Y))


def idle_while_a_node_is_ready(scheduler: Scheduler) -> None:
    scheduler.replicas.forget(GPU0)


def miscount_open_work(scheduler: Scheduler) -> None:
    request_of(scheduler).work.num_calls += 1


SPOILERS = [
    (forget_the_batch, "running nodes and sent calls differ"),
    (lose_a_value_that_is_waited_for, "count of missing inputs"),
    (keep_a_value_that_nobody_reads, "readers of"),
    (retire_a_value_that_is_waited_for, "given up"),
    (count_a_reader_too_many, "readers of"),
    (count_a_running_reader_too_few, "running readers of"),
    (forget_a_holder, "is no holder"),
    (let_a_holder_die_unnoticed, "held by a dead executor"),
    (forget_a_file, "files that are needed"),
    (make_a_waiting_node_ready, "misses 1 inputs"),
    (drop_a_node_of_a_request_that_goes_on, "in a request that goes on"),
    (run_a_node_elsewhere, "a node runs elsewhere"),
    (leave_a_finished_request_alive, "has not ended"),
    (end_with_values_held, "has values"),
    (take_a_ready_node_out_of_the_queue, "not what is ready"),
    (spoil_the_order_of_the_queue, "order of the ready queue"),
    (idle_while_a_node_is_ready, "an executor idle, and nothing is sent"),
    (miscount_open_work, "count of open calls"),
]


@pytest.mark.parametrize(
    ("spoil", "rule"), SPOILERS, ids=lambda item: getattr(item, "__name__", "")
)
def test_a_contradiction_is_found(
    scheduler: Scheduler, spoil: Callable[[Scheduler], None], rule: str
) -> None:
    check_scheduler(scheduler)
    spoil(scheduler)
    with pytest.raises(InvariantBroken, match=rule):
        check_scheduler(scheduler)


def test_the_story_of_the_request_is_told(scheduler: Scheduler) -> None:
    make_a_waiting_node_ready(scheduler)
    with pytest.raises(InvariantBroken, match="request a so far: x ready, x running, x done"):
        check_scheduler(scheduler)


# chains -----------------------------------------------------------------------------------------


@pytest.fixture
def chained() -> Scheduler:
    """a and b share a chain of three steps on gpu0; c, of a later request, waits."""
    plant = Plant(SchedulerConfig(max_ahead=4))
    ref = model("m")
    plant.arrive("a", chain(3, ref))
    plant.arrive("b", chain(3, ref))
    plant.join("gpu0")
    plant.arrive("c", chain(1, None), number=1.0)
    slot = plant.scheduler.executors[GPU0]
    assert [len(batch.calls) for batch in slot.batches()] == [2, 2, 2]
    return plant.scheduler


def let_an_earlier_node_wait(scheduler: Scheduler) -> None:
    waiting = scheduler.requests[RequestId("c")].nodes[NodeId("s0")]
    waiting.order = (-1.0, *waiting.order[1:])


def recall_half_a_chain(scheduler: Scheduler) -> None:
    scheduler.executors[GPU0].later[1].is_recalled = True


def forget_to_recall_for_a_drop(scheduler: Scheduler) -> None:
    scheduler.executors[GPU0].is_drop_wanted = True


def keep_a_part_from_an_idle_executor(scheduler: Scheduler) -> None:
    scheduler.executors[GPU0].later[0].could_part = True
    scheduler.executors.join(ExecutorId("gpu1"), "i")


def end_a_request_and_leave_its_chain(scheduler: Scheduler) -> None:
    request_of(scheduler).ending = Ending(Outcome.INTERRUPTED)


def share_a_batch_in_strict_mode(scheduler: Scheduler) -> None:
    scheduler.config = SchedulerConfig(is_strict=True)


def share_a_link_of_another_op(scheduler: Scheduler) -> None:
    scheduler.executors[GPU0].later[0].op = "vae_decode"


def share_a_batch_with_a_suspect(scheduler: Scheduler) -> None:
    request_of(scheduler).nodes[NodeId("s1")].num_deaths = 1


CHAIN_SPOILERS = [
    (let_an_earlier_node_wait, "waits behind a chain"),
    (recall_half_a_chain, "half a chain recalled"),
    (forget_to_recall_for_a_drop, "models are to be dropped"),
    (keep_a_part_from_an_idle_executor, "an idle executor could take"),
    (end_a_request_and_leave_its_chain, "for a request that ends"),
    (share_a_batch_in_strict_mode, "a batch of 2 calls"),
    (share_a_link_of_another_op, "does not go on"),
    (share_a_batch_with_a_suspect, "is not alone"),
]


@pytest.mark.parametrize(
    ("spoil", "rule"), CHAIN_SPOILERS, ids=lambda item: getattr(item, "__name__", "")
)
def test_a_chain_that_contradicts_the_rules_is_found(
    chained: Scheduler, spoil: Callable[[Scheduler], None], rule: str
) -> None:
    check_scheduler(chained)
    spoil(chained)
    with pytest.raises(InvariantBroken, match=rule):
        check_scheduler(chained)
