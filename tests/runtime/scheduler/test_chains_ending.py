"""Chains whose requests end, whose executors die, and whose batches come to nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kit.chains import DENOISER, recalled, shared, started
from kit.graphs import chain
from kit.loops import order_of_work, sent
from kit.plant import Plant, fail, resets, sends
from nodeloom.runtime.ids import ExecutorId, RequestId
from nodeloom.runtime.protocol import CallCancelled, CallLost, CallResult, NodeCall
from nodeloom.runtime.scheduler.actions import CancelSent, Outcome
from nodeloom.runtime.scheduler.invariants import check_scheduler
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig

GPU0 = ExecutorId("gpu0")


@pytest.fixture
def plant() -> Iterator[Plant]:
    """Chains of up to 4 batches behind the one that runs."""
    plant = Plant(SchedulerConfig(max_ahead=4))
    yield plant
    check_scheduler(plant.scheduler)


def lose_inputs(call: NodeCall) -> CallResult:
    keys = [ref.key for item in call.inputs for ref in getattr(item.value, "tensors", ())]
    return CallLost(missing=tuple(keys))


# requests that end ------------------------------------------------------------------------------


def test_the_end_of_a_request_cancels_its_chain(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, DENOISER))
    actions = plant.cancel("a")
    assert len([a for a in actions if isinstance(a, CancelSent)]) == 3
    assert recalled(plant, actions) == []
    plant.run_all()
    assert plant.outcome("a") == Outcome.INTERRUPTED
    plant.assert_empty()


def test_a_request_that_ends_leaves_the_chain_to_those_that_share_it(plant: Plant) -> None:
    shared(plant)
    actions = plant.cancel("a")
    assert recalled(plant, actions)[0] == "a/s1 b/s1"
    assert [a for a in actions if isinstance(a, CancelSent)] == []
    assert order_of_work(plant, "gpu0") == ["a/s0 b/s0", *(f"b/s{i}" for i in range(1, 6))]
    assert (plant.outcome("a"), plant.outcome("b")) == (Outcome.INTERRUPTED, Outcome.SUCCESS)
    plant.assert_empty()


def test_values_of_a_request_that_ended_stay_while_a_shared_link_reads_them(plant: Plant) -> None:
    shared(plant)
    first = plant.finish("gpu0")  # on its way; the executor is at s1, which reads both states
    plant.cancel("a")
    plant.happen(first)  # the plant looks that nothing is released that a batch reads
    (kept,) = plant.scheduler.executors[GPU0].batches()[0].calls[0].inputs.values()
    assert kept.is_retired
    plant.run_all()
    assert plant.outcome("b") == Outcome.SUCCESS
    plant.assert_empty()


# what goes wrong --------------------------------------------------------------------------------


def test_a_death_is_blamed_on_the_running_batch_alone() -> None:
    plant = Plant(SchedulerConfig(max_attempts=2, max_ahead=4))
    plant.join("gpu0")
    plant.arrive("a", chain(3, DENOISER))
    for _ in range(2):
        plant.lose("gpu0")
        plant.join("gpu0")
        if not plant.ended:
            plant.report("gpu0")
    # Once under s0, once under s1: neither was running twice.
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_nodes_that_were_running_in_a_death_are_not_shared_by_a_chain() -> None:
    plant = Plant(SchedulerConfig(max_attempts=2, max_ahead=4))
    shared(plant)
    plant.report("gpu0")
    assert plant.running("gpu0") == ["a/s1", "b/s1"]
    plant.files.names.clear()  # so that both begin anew, and together
    plant.lose("gpu0")
    plant.join("gpu0")
    assert plant.running("gpu0") == ["a/s0", "b/s0"]
    plant.report("gpu0")
    assert sent(plant, "gpu0")[0] == "a/s1"
    plant.lose("gpu0")
    assert plant.outcome("a") == Outcome.ERROR
    assert "b" not in plant.ended
    plant.join("gpu0")
    plant.run_all()
    assert plant.outcome("b") == Outcome.SUCCESS
    plant.assert_empty()


def test_what_comes_after_a_failing_call_comes_back_without_blame() -> None:
    plant = Plant(SchedulerConfig(max_lost=0, max_ahead=4))
    shared(plant, num_steps=7)
    plant.report("gpu0")
    good = plant.succeed("gpu0")
    actions = plant.report("gpu0", result=lambda c: fail(c) if c.request_id == "a" else good(c))
    assert started(actions) == []  # the next link is known not to run
    assert (sends(actions), recalled(plant, actions)) == ([], [])
    while plant.workers[GPU0].is_stopped:
        assert resets(plant.report("gpu0")) == []
    assert order_of_work(plant, "gpu0") == [f"b/s{i}" for i in range(2, 7)]
    assert (plant.outcome("a"), plant.outcome("b")) == (Outcome.ERROR, Outcome.SUCCESS)
    plant.assert_empty()


@pytest.mark.parametrize("result", [lose_inputs, lambda _: CallCancelled()])
def test_what_comes_after_a_lost_or_stopped_call_comes_back_without_blame(
    result: Callable[[NodeCall], CallResult],
) -> None:
    plant = Plant(SchedulerConfig(max_lost=1, max_ahead=4))
    plant.join("gpu0")
    plant.arrive("a", chain(4, DENOISER))
    plant.report("gpu0")
    assert started(plant.report("gpu0", result=result)) == []
    states = plant.scheduler.requests[RequestId("a")].nodes.values()
    for _ in range(2):
        plant.report("gpu0")
    assert [state.num_lost for state in states] == [0, 1, 0, 0]
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()
