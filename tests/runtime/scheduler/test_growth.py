"""Pending nodes: asked about once their values are known, and what comes of the answers."""

from __future__ import annotations

import pytest
from kit.graphs import graph, node, pending
from kit.plant import Plant, fail, resets, sends
from nodeloom.graph_import.ir import Graph, NodeId
from nodeloom.graph_import.types import INT, LATENT, SAMPLER_STATE
from nodeloom.runtime.errors import InvariantBroken
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.protocol import CallFailed
from nodeloom.runtime.scheduler.actions import LowerPending, Outcome, RequestEnded, RequestStarted
from nodeloom.runtime.scheduler.events import GraphGrown, GrowthFailed

SIZE = node("size", "image_size", gives=[INT, INT])
BIG = node("picture", "load_image")
SCALE = node("scale", "image_scale", reads=["picture", "size"])
FIRST = graph(SIZE, BIG, sinks=[], pending=[pending("p", ("size", 0)), pending("q")])
WHOLE = graph(SIZE, BIG, SCALE)


def error_code(plant: Plant, name: str) -> str:
    error = plant.ended[RequestId(name)].error
    assert error is not None
    return error.code


def start(plant: Plant, first: Graph = FIRST) -> None:
    plant.join("gpu0")
    plant.arrive("a", first)


def test_the_compiler_is_asked_when_the_value_is_known_and_told_all_scalars(plant: Plant) -> None:
    start(plant)
    (question,) = [a for a in plant.report("gpu0") if isinstance(a, LowerPending)]
    assert question.pending_id == "p"
    assert question.values == (("size", 0, 1), ("size", 1, 2))


def test_a_question_is_asked_once(plant: Plant) -> None:
    start(plant)
    plant.run_all()
    assert len(plant.questions) == 1


def test_the_grown_graph_runs_and_the_request_ends_when_nothing_is_pending(plant: Plant) -> None:
    start(plant)
    plant.run_all()
    assert plant.ended == {}
    assert sends(plant.grow("a", WHOLE)) == [("gpu0", ["a/scale"])]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_value_that_a_pending_node_may_read_is_kept(plant: Plant) -> None:
    start(plant)
    plant.run_all()
    assert resets(plant.grow("a", WHOLE)) == []


def test_states_between_sampler_steps_are_not_kept_for_pending_nodes(plant: Plant) -> None:
    steps = [node("s0", gives=[SAMPLER_STATE]), node("s1", reads=["s0"], gives=[SAMPLER_STATE])]
    start(plant, graph(SIZE, *steps, sinks=[], pending=[pending("p", "size")]))
    plant.run_all()
    assert plant.workers[next(iter(plant.workers))].known == set()


def test_what_the_grown_graph_does_not_read_is_released(plant: Plant) -> None:
    start(plant)
    plant.run_all()
    plant.grow("a", graph(SIZE, BIG))
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_value_that_was_lost_meanwhile_is_made_again_for_a_grown_graph(plant: Plant) -> None:
    start(plant)
    plant.run_all()
    assert resets(plant.join("gpu0")) == []  # the old process is gone, and nobody waits for it
    assert resets(plant.grow("a", WHOLE)) == ["a/picture"]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_running_nodes_go_on_while_the_graph_grows(plant: Plant) -> None:
    start(plant)
    plant.report("gpu0")
    assert plant.running("gpu0") == ["a/picture"]
    plant.grow("a", WHOLE)
    assert plant.running("gpu0") == ["a/picture"]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS


def test_a_second_question_waits_for_the_first_answer(plant: Plant) -> None:
    other = node("other", "image_size", gives=[INT])
    both = [pending("p", "size"), pending("r", "other")]
    start(plant, graph(SIZE, other, sinks=[], pending=both))
    plant.run_all()
    assert [q.pending_id for q in plant.questions] == ["p"]
    plant.grow("a", graph(SIZE, other, sinks=[], pending=both[1:]))
    assert [q.pending_id for q in plant.questions] == ["p", "r"]
    assert plant.questions[1].values == (("other", 0, 3), ("size", 0, 1), ("size", 1, 2))


def test_a_node_may_stay_pending_on_other_values(plant: Plant) -> None:
    start(plant)
    plant.run_all()
    plant.grow("a", graph(SIZE, BIG, SCALE, sinks=[], pending=[pending("p", ("more", 0))]))
    more = node("more", "image_size", reads=["scale"], gives=[INT])
    pending_again = [pending("p", ("more", 0))]
    plant.grow("a", graph(SIZE, BIG, SCALE, more, sinks=[], pending=pending_again))
    plant.run_all()
    assert [q.pending_id for q in plant.questions] == ["p", "p"]
    plant.grow("a", graph(SIZE, BIG, SCALE, more))
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_a_changed_node_breaks_an_invariant(plant: Plant) -> None:
    start(plant)
    plant.report("gpu0")
    changed = graph(node("size", "other_op", gives=[INT, INT]), BIG)
    with pytest.raises(InvariantBroken, match="changes node size"):
        plant.scheduler.on_event(GraphGrown(request_id=RequestId("a"), graph=changed), 9.0)


def test_a_missing_node_breaks_an_invariant(plant: Plant) -> None:
    start(plant)
    plant.report("gpu0")
    with pytest.raises(InvariantBroken, match="changes node picture"):
        plant.scheduler.on_event(GraphGrown(request_id=RequestId("a"), graph=graph(SIZE)), 9.0)


def test_a_growth_that_fails_fails_the_request(plant: Plant) -> None:
    start(plant)
    plant.run_all()
    failed = fail(None)
    assert isinstance(failed, CallFailed)
    plant.happen(
        GrowthFailed(request_id=RequestId("a"), pending_id=NodeId("p"), error=failed.error)
    )
    ended = plant.ended[RequestId("a")]
    assert (ended.outcome, ended.node_id, ended.error) == (Outcome.ERROR, "p", failed.error)
    plant.assert_empty()


def test_an_answer_for_a_request_that_ended_is_ignored(plant: Plant) -> None:
    start(plant)
    plant.run_all()
    plant.cancel("a")
    assert plant.happen(GraphGrown(request_id=RequestId("a"), graph=WHOLE)) == []


@pytest.mark.parametrize("type_", [LATENT, SAMPLER_STATE])
def test_waiting_for_what_is_no_scalar_fails_the_request(plant: Plant, type_: str) -> None:
    start(plant, graph(node("x", gives=[type_]), sinks=[], pending=[pending("p", "x")]))
    plant.report("gpu0")
    assert error_code(plant, "a") == "growth_needs_scalar"
    assert plant.ended[RequestId("a")].node_id == "p"
    plant.assert_empty()


def test_a_compiler_that_gets_no_further_fails_the_request(plant: Plant) -> None:
    start(plant)
    plant.run_all()
    plant.grow("a", FIRST)
    assert error_code(plant, "a") == "growth_stuck"
    plant.assert_empty()


def test_a_request_that_can_never_begin_is_started_and_failed(plant: Plant) -> None:
    actions = plant.arrive("a", graph(pending=[pending("p")]))
    assert [type(a) for a in actions] == [RequestStarted, RequestEnded]
    assert error_code(plant, "a") == "growth_stuck"
