"""Requests end once, and not before every executor is free of them."""

from __future__ import annotations

from kit.graphs import chain, graph, model, node
from kit.plant import Plant, fail, sends
from nodeloom.graph_import.ir import Graph
from nodeloom.runtime.ids import BatchId, ExecutorId, RequestId
from nodeloom.runtime.scheduler.actions import (
    AnyAction,
    CancelSent,
    NodeFinished,
    NodeStarted,
    Outcome,
    RequestEnded,
    RequestStarted,
)
from nodeloom.runtime.scheduler.node_state import NodeStatus

MODEL = model("m")


def cancels(actions: list[AnyAction]) -> list[AnyAction]:
    return [a for a in actions if isinstance(a, CancelSent)]


def wide(num_nodes: int) -> Graph:
    """Independent nodes of different ops: each is a batch of its own."""
    return graph(*[node(f"n{i}", f"op{i}") for i in range(num_nodes)])


def test_a_waiting_request_ends_at_once_when_it_is_cancelled(plant: Plant) -> None:
    plant.arrive("a", chain(2, None))
    (ended,) = plant.cancel("a")
    assert isinstance(ended, RequestEnded)
    assert (ended.outcome, ended.node_id, ended.error) == (Outcome.INTERRUPTED, "s0", None)


def test_a_running_request_ends_when_its_executor_is_free_of_it(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, None))
    plant.report("gpu0")
    assert plant.cancel("a") == [CancelSent(executor=ExecutorId("gpu0"), batch_id=BatchId(2))]
    view = plant.scheduler.request_view(RequestId("a"))
    assert [v.status for v in view.values()] == [
        NodeStatus.DONE,
        NodeStatus.RUNNING,
        NodeStatus.DROPPED,
    ]
    assert any(isinstance(a, RequestEnded) for a in plant.report("gpu0"))
    assert plant.ended[RequestId("a")].node_id == "s1"
    plant.assert_empty()


def test_a_cancelled_request_ends_when_the_executor_that_ran_it_dies(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, None))
    plant.cancel("a")
    plant.lose("gpu0")
    assert plant.outcome("a") == Outcome.INTERRUPTED


def test_a_batch_that_another_request_waits_for_is_not_cancelled(plant: Plant) -> None:
    plant.arrive("a", chain(2, MODEL))
    plant.arrive("b", chain(2, MODEL))
    plant.join("gpu0")
    assert plant.running("gpu0") == ["a/s0", "b/s0"]
    assert plant.cancel("a") == []
    actions = plant.report("gpu0")
    assert [a.request_id for a in actions if isinstance(a, NodeFinished)] == ["b"]
    assert plant.outcome("a") == Outcome.INTERRUPTED
    plant.run_all()
    assert plant.outcome("b") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_batch_is_cancelled_with_the_last_request_that_waited_for_it(plant: Plant) -> None:
    plant.arrive("a", chain(2, MODEL))
    plant.arrive("b", chain(2, MODEL))
    plant.join("gpu0")
    assert cancels(plant.cancel("a")) == []
    assert len(cancels(plant.cancel("b"))) == 1
    assert cancels(plant.cancel("b")) == []
    plant.report("gpu0")
    plant.assert_empty()


def test_a_request_that_was_never_started_is_not_started_by_its_end(plant: Plant) -> None:
    plant.arrive("a", chain(2, None))
    assert not [a for a in plant.cancel("a") if isinstance(a, RequestStarted)]


def test_a_failing_node_fails_its_request_and_leaves_the_rest_of_the_batch_alone(
    plant: Plant,
) -> None:
    plant.arrive("a", chain(2, MODEL))
    plant.arrive("b", chain(2, MODEL))
    plant.join("gpu0")
    good = plant.succeed("gpu0")
    plant.report("gpu0", result=lambda call: fail(call) if call.request_id == "a" else good(call))
    ended = plant.ended[RequestId("a")]
    assert (ended.outcome, ended.node_id) == (Outcome.ERROR, "s0")
    assert ended.error is not None
    assert ended.error.message == "boom"
    plant.run_all()
    assert plant.outcome("b") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_failed_request_ends_when_its_other_nodes_have_stopped(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    plant.arrive("a", wide(3))
    actions = plant.report("gpu0", result=fail)
    assert cancels(actions) == [CancelSent(executor=ExecutorId("gpu1"), batch_id=BatchId(2))]
    assert plant.ended == {}
    plant.report("gpu1")
    ended = plant.ended[RequestId("a")]
    assert (ended.outcome, ended.node_id) == (Outcome.ERROR, "n0")
    plant.assert_empty()


def test_the_first_failure_is_the_one_that_is_told(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    plant.arrive("a", wide(2))
    late = plant.finish("gpu1", result=fail)
    plant.report("gpu0", result=fail)
    plant.cancel("a")
    plant.happen(late)
    ended = plant.ended[RequestId("a")]
    assert (ended.outcome, ended.node_id) == (Outcome.ERROR, "n0")


def test_nothing_is_told_of_nodes_of_a_request_that_is_ending(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, None))
    report = plant.finish("gpu0")
    plant.cancel("a")
    told = [a for a in plant.happen(report) if isinstance(a, NodeStarted | NodeFinished)]
    assert told == []


def test_an_executor_goes_on_with_others_when_a_request_ends(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, None))
    plant.arrive("b", chain(1, None), number=1.0)
    plant.cancel("a")
    assert sends(plant.report("gpu0")) == [("gpu0", ["b/s0"])]


def test_nodes_that_no_sink_needs_are_stopped_when_the_sinks_are_done(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    plant.arrive("a", graph(node("sink", "op0"), node("spare", "op1"), sinks=["sink"]))
    assert len(cancels(plant.report("gpu0"))) == 1
    plant.report("gpu1")
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()
