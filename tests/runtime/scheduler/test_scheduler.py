"""Requests from arrival to end, the order of their nodes, and what the coordinator can look at."""

from __future__ import annotations

import msgspec
import pytest
from kit.graphs import chain, graph, model, node, text_to_image
from kit.plant import Plant, sends
from nodeloom.graph_import.ir import NodeId
from nodeloom.graph_import.types import INT
from nodeloom.runtime.errors import InvariantBroken
from nodeloom.runtime.ids import ExecutorId, RequestId
from nodeloom.runtime.protocol import CallDone, ScalarValue
from nodeloom.runtime.scheduler.actions import (
    Drop,
    NodeFinished,
    NodeStarted,
    Outcome,
    RequestEnded,
    RequestStarted,
    SendBatch,
)
from nodeloom.runtime.scheduler.events import ModelsDropped, RequestCancelled
from nodeloom.runtime.scheduler.node_state import NodeStatus


def test_a_text_to_image_request_runs_node_by_node_and_leaves_nothing_behind(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", text_to_image(num_steps=3))
    plant.run_all()
    finished = [
        a.node_id for _, _, answer in plant.log for a in answer if isinstance(a, NodeFinished)
    ]
    assert len(finished) == len(set(finished)) == 10
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_request_is_started_before_its_first_node_and_ended_after_its_last(plant: Plant) -> None:
    plant.join("gpu0")
    first = plant.arrive("a", chain(1, None, "empty_latent"))
    assert [type(a) for a in first] == [RequestStarted, NodeStarted, SendBatch]
    last = plant.report("gpu0")
    assert [type(a) for a in last][:2] == [NodeFinished, RequestEnded]


def test_a_request_without_nodes_is_started_and_ended_at_once(plant: Plant) -> None:
    actions = plant.arrive("a", graph())
    assert [type(a) for a in actions] == [RequestStarted, RequestEnded]
    assert plant.outcome("a") == Outcome.SUCCESS


def test_requests_wait_for_an_executor(plant: Plant) -> None:
    assert plant.arrive("a", chain(2, None)) == []
    assert sends(plant.join("gpu0")) == [("gpu0", ["a/s0"])]


def test_the_same_executor_runs_one_batch_at_a_time(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(1, None))
    assert sends(plant.arrive("b", chain(1, None))) == []
    assert sends(plant.report("gpu0")) == [("gpu0", ["b/s0"])]


def test_requests_run_by_number_and_then_by_id(plant: Plant) -> None:
    for name, number in (("late", 3.0), ("b", 1.0), ("a", 1.0), ("front", -2.0)):
        plant.arrive(name, chain(1, None), number=number)
    plant.join("gpu0")
    order = plant.running("gpu0")
    while plant.busy():
        plant.report("gpu0")
        order += plant.running("gpu0")
    assert order == ["front/s0", "a/s0", "b/s0", "late/s0"]


def test_within_a_request_shallow_nodes_go_first_and_then_those_that_stand_first(
    plant: Plant,
) -> None:
    nodes = [
        node("a0", "op_a"),
        node("a1", "op_b", reads=["a0"]),
        node("b0", "op_c"),
        node("c0", "op_d"),
    ]
    plant.arrive("r", graph(*nodes))
    plant.join("gpu0")
    order = plant.running("gpu0")
    while plant.busy():
        plant.report("gpu0")
        order += plant.running("gpu0")
    assert order == ["r/a0", "r/b0", "r/c0", "r/a1"]


def test_a_call_carries_params_inputs_by_name_and_the_hidden_names(plant: Plant) -> None:
    nodes = [
        node("size", "image_size", gives=[INT, INT]),
        node(
            "save",
            "save_image",
            reads={"width": ("size", 0), "height": ("size", 1)},
            gives=[],
            hidden=("prompt", "extra_pnginfo"),
        ),
    ]
    plant.join("gpu0")
    plant.arrive("a", graph(*nodes))
    (send,) = [a for a in plant.report("gpu0") if isinstance(a, SendBatch)]
    (call,) = send.batch.calls
    assert [(item.name, item.value) for item in call.inputs] == [
        ("width", ScalarValue(value=1)),
        ("height", ScalarValue(value=2)),
    ]
    assert (call.num_outputs, call.hidden) == (0, ())
    assert send.hidden == (("prompt", "extra_pnginfo"),)


def test_a_deferred_input_is_marked_as_such(plant: Plant) -> None:
    nodes = [node("a", "op_a"), node("b", "op_b", reads=["a"], deferred=True)]
    plant.join("gpu0")
    plant.arrive("r", graph(*nodes))
    (send,) = [a for a in plant.report("gpu0") if isinstance(a, SendBatch)]
    assert [item.is_deferred for item in send.batch.calls[0].inputs] == [True]


def test_a_second_request_of_the_same_id_breaks_an_invariant(plant: Plant) -> None:
    plant.arrive("a", chain(1, None))
    with pytest.raises(InvariantBroken, match="arrived twice"):
        plant.arrive("a", chain(1, None))


def test_an_id_may_come_again_after_its_request_ended(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(1, None))
    plant.run_all()
    plant.started.clear()
    plant.ended.clear()
    plant.arrive("a", chain(1, None))
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS


def test_a_repeated_report_is_ignored(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, None))
    report = plant.finish("gpu0")
    plant.happen(report)
    assert plant.happen(report) == []


def test_a_report_with_too_few_results_breaks_an_invariant(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(1, None))
    report = plant.finish("gpu0")
    with pytest.raises(InvariantBroken, match="0 results for the 1 calls"):
        plant.scheduler.on_event(msgspec.structs.replace(report, results=()), 9.0)


def test_an_op_that_gives_the_wrong_number_of_outputs_fails_its_request(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, None))
    plant.report("gpu0", result=lambda call: CallDone(outputs=(), ui=None, preview=None))
    error = plant.ended[RequestId("a")].error
    assert error is not None
    assert error.code == "wrong_outputs"
    plant.assert_empty()


def test_models_are_dropped_at_once_where_idle_and_after_the_batch_where_busy(
    plant: Plant,
) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    plant.arrive("a", chain(2, model("m")))
    actions = plant.happen(ModelsDropped())
    assert actions == [Drop(executor=ExecutorId("gpu1"))]
    actions = plant.report("gpu0")
    assert Drop(executor=ExecutorId("gpu0")) in actions
    plant.report("gpu0")
    assert plant.scheduler.executors_view()[ExecutorId("gpu0")].num_loads == 2


def test_the_view_of_a_request_tells_status_and_executor_of_every_node(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, None))
    plant.report("gpu0")
    view = plant.scheduler.request_view(RequestId("a"))
    assert {i: (v.status, v.executor) for i, v in view.items()} == {
        "s0": (NodeStatus.DONE, "gpu0"),
        "s1": (NodeStatus.RUNNING, "gpu0"),
        "s2": (NodeStatus.WAITING, None),
    }
    assert plant.scheduler.request_view(RequestId("unknown")) == {}


def test_the_view_of_executors_tells_what_runs_and_which_models_are_there(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(2, model("m")))
    view = plant.scheduler.executors_view()[ExecutorId("gpu0")]
    assert (view.running, view.running_op, view.resident, view.num_loads) == (1, "denoise", (), 0)
    plant.run_all()
    view = plant.scheduler.executors_view()[ExecutorId("gpu0")]
    assert (view.running, view.running_op, view.num_loads) == (None, None, 1)
    assert view.resident == (model("m").key,)


def test_running_order_lists_the_requests_that_have_started(plant: Plant) -> None:
    plant.arrive("c", chain(1, model("m")), number=3.0)
    plant.arrive("b", chain(1, model("m")), number=2.0)
    assert plant.scheduler.running_order() == ()
    plant.join("gpu0")
    plant.arrive("a", chain(1, model("m")), number=1.0)
    assert plant.scheduler.running_order() == ("b", "c")


def test_cancelling_an_unknown_request_is_no_error(plant: Plant) -> None:
    assert plant.happen(RequestCancelled(request_id=RequestId("never"))) == []


def test_node_ids_of_two_requests_do_not_meet(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", text_to_image(2))
    plant.arrive("b", text_to_image(2))
    plant.run_all()
    plant.assert_empty()
    saves = [
        a.request_id
        for _, _, answer in plant.log
        for a in answer
        if isinstance(a, NodeFinished) and a.node_id == NodeId("save")
    ]
    assert sorted(saves) == ["a", "b"]
