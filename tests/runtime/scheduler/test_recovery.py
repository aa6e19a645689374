"""Losses: the fewest nodes run again, nothing twice, and killers of executors are stopped."""

from __future__ import annotations

from kit.graphs import chain, graph, model, node
from kit.plant import Plant, resets, sends
from nodeloom.graph_import.types import INT, MASK
from nodeloom.runtime.ids import BatchId, ExecutorId, RequestId
from nodeloom.runtime.protocol import CallCancelled, CallLost, CallResult, NodeCall
from nodeloom.runtime.scheduler.actions import Outcome
from nodeloom.runtime.scheduler.events import ExecutorJoined, ExecutorLost
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig

NONE_BEGUN = BatchId(0)


def error_code(plant: Plant, name: str) -> str:
    error = plant.ended[RequestId(name)].error
    assert error is not None
    return error.code


def first_batch(plant: Plant, name: str) -> BatchId:
    """What the executor was sent first, of what it has not reported."""
    return plant.scheduler.executors[ExecutorId(name)].batches()[0].batch_id


def lose_inputs(call: NodeCall) -> CallResult:
    """The result of a call that could not fetch any of its inputs."""
    keys = [ref.key for item in call.inputs for ref in getattr(item.value, "tensors", ())]
    return CallLost(missing=tuple(keys))


def test_a_node_that_was_running_runs_elsewhere(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, model("m")))
    plant.join("gpu1")
    actions = plant.lose("gpu0")
    assert resets(actions) == ["a/s0"]
    assert sends(actions) == [("gpu1", ["a/s0"])]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_the_producer_of_a_lost_value_runs_again_and_no_more(plant: Plant) -> None:
    plant.join("gpu0")
    nodes = [node("x"), node("y", reads=["x"]), node("z", reads=["y"]), node("end", reads=["z"])]
    plant.arrive("a", graph(*nodes))
    plant.report("gpu0")
    plant.report("gpu0")
    plant.fetch("gpu0")
    plant.join("gpu1")
    # z ran; y's value is gone, and x's was given up when y was done: all three again.
    assert resets(plant.lose("gpu0")) == ["a/z", "a/x", "a/y"]
    plant.run_all()
    plant.assert_empty()


def test_what_lives_elsewhere_or_in_a_ref_is_not_made_again(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    nodes = [
        node("scalar", "op_a", gives=[INT]),
        node("elsewhere", "op_b"),
        node("inline", "op_c", gives=[MASK]),
        node("lost", "op_d"),
        node("join", "op_e", reads=["scalar", "elsewhere", "inline", "lost"]),
    ]
    plant.arrive("a", graph(*nodes))
    assert plant.running("gpu1") == ["a/elsewhere"]
    plant.report("gpu0")
    plant.report("gpu0")
    plant.report("gpu0")
    plant.report("gpu1")
    assert plant.running("gpu0") == ["a/join"]
    assert resets(plant.lose("gpu0")) == ["a/join", "a/lost"]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_reader_that_already_runs_elsewhere_may_finish(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    nodes = [node("x"), node("y0", "op", reads=["x"]), node("y1", "op", reads=["x"])]
    plant.arrive("a", graph(*nodes))
    plant.report("gpu0")
    assert plant.running("gpu1") == ["a/y1"]
    plant.fetch("gpu1")
    # y0 was running on gpu0 and needs x again; y1 has x already.
    assert resets(plant.lose("gpu0")) == ["a/y0", "a/x"]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_value_that_only_running_nodes_read_is_made_again_when_they_miss_it(
    plant: Plant,
) -> None:
    plant.join("gpu0")
    plant.arrive("a", graph(node("x"), node("y", reads=["x"]), node("keep", "op", reads=["y"])))
    plant.arrive("front", chain(1, None), number=-1.0)
    plant.join("gpu1")
    plant.arrive("next", chain(1, None), number=-1.0)
    plant.report("gpu0")
    assert plant.running("gpu0") == ["next/s0"]
    plant.report("gpu1")
    assert plant.running("gpu1") == ["a/y"]
    assert resets(plant.lose("gpu0")) == ["next/s0"]  # nobody waits for x
    assert resets(plant.report("gpu1")) == ["a/y", "a/x"]  # but y could not fetch it
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_finished_sink_never_runs_again(plant: Plant) -> None:
    plant.join("gpu0")
    nodes = [
        node("x"),
        node("save", "save_image", reads=["x"], gives=[]),
        node("y", "op_y", reads=["x"]),
        node("z", "op_z", reads=["y"]),
    ]
    plant.arrive("a", graph(*nodes))
    plant.report("gpu0")
    assert plant.running("gpu0") == ["a/save"]
    plant.report("gpu0")
    plant.report("gpu0")
    plant.join("gpu1")
    assert resets(plant.lose("gpu0")) == ["a/z", "a/x", "a/y"]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS


def test_a_new_incarnation_means_the_loss_of_the_old_one(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, None))
    plant.report("gpu0")
    actions = plant.join("gpu0")
    assert resets(actions) == ["a/s1", "a/s0"]
    assert sends(actions) == [("gpu0", ["a/s0"])]


def test_reports_and_hellos_of_a_dead_incarnation_are_ignored(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, None))
    report = plant.finish("gpu0")
    plant.lose("gpu0")
    assert plant.happen(report) == []
    hello = ExecutorJoined(executor=ExecutorId("gpu0"), incarnation=report.incarnation)
    assert plant.happen(hello) == []
    assert plant.scheduler.executors_view() == {}


def test_a_loss_that_is_old_news_is_ignored(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu0")
    plant.arrive("a", chain(2, None))
    lost = ExecutorLost(executor=ExecutorId("gpu0"), incarnation="i1", reason="killed")
    assert plant.scheduler.on_event(lost, 1.0) == []
    assert plant.running("gpu0") == ["a/s0"]


def test_a_request_whose_node_killed_two_executors_is_poisoned(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("bad", chain(2, model("m")))
    plant.arrive("good", chain(2, model("m")), number=1.0)
    plant.lose("gpu0")
    plant.join("gpu0")
    plant.lose("gpu0")
    assert plant.outcome("bad") == Outcome.ERROR
    assert error_code(plant, "bad") == "poisoned_request"
    assert plant.ended[RequestId("bad")].node_id == "s0"
    plant.join("gpu0")
    plant.run_all()
    assert plant.outcome("good") == Outcome.SUCCESS


def test_a_batch_that_a_dead_executor_had_not_begun_did_not_kill_it(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    plant.arrive("a", chain(2, model("m")))
    plant.lose("gpu0", begun=first_batch(plant, "gpu0"))
    assert plant.running("gpu1") == ["a/s0"]
    assert resets(plant.lose("gpu1", begun=NONE_BEGUN)) == ["a/s0"]
    plant.join("gpu2")
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_link_that_had_begun_is_the_one_that_killed_its_executor() -> None:
    plant = Plant(SchedulerConfig(max_attempts=1, max_ahead=4))
    plant.join("gpu0")
    plant.arrive("a", chain(3, model("m")))
    first = first_batch(plant, "gpu0")
    assert plant.scheduler.executors[ExecutorId("gpu0")].later
    plant.lose("gpu0", begun=BatchId(first + 1))  # the report of the first is lost, too
    assert error_code(plant, "a") == "poisoned_request"
    assert plant.ended[RequestId("a")].node_id == "s1"


def test_two_deaths_under_two_nodes_of_a_request_poison_nothing(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", graph(node("x", gives=[MASK]), node("y", reads=["x"])))
    plant.lose("gpu0")
    plant.join("gpu0")
    plant.report("gpu0")
    plant.lose("gpu0")
    plant.join("gpu0")
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS


def test_inputs_that_could_not_be_fetched_are_made_again(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, None))
    plant.report("gpu0")
    assert resets(plant.report("gpu0", result=lose_inputs)) == ["a/s1", "a/s0"]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_request_whose_inputs_are_lost_again_and_again_fails() -> None:
    plant = Plant(SchedulerConfig(max_lost=2, max_ahead=0))
    plant.join("gpu0")
    plant.arrive("a", chain(2, None))
    for _ in range(3):
        plant.report("gpu0")
        plant.report("gpu0", result=lose_inputs)
    assert error_code(plant, "a") == "inputs_lost"
    assert plant.ended[RequestId("a")].node_id == "s1"
    plant.assert_empty()


def test_a_call_that_its_executor_stopped_unasked_is_tried_again_but_not_for_ever() -> None:
    plant = Plant(SchedulerConfig(max_lost=1, max_ahead=0))
    plant.join("gpu0")
    plant.arrive("a", chain(1, None))
    assert sends(plant.report("gpu0", result=lambda _: CallCancelled())) == [("gpu0", ["a/s0"])]
    plant.report("gpu0", result=lambda _: CallCancelled())
    assert error_code(plant, "a") == "inputs_lost"
