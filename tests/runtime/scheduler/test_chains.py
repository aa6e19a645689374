"""Chains: who gets one, what clients hear of it, and who ends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.chains import DENOISER, beside, finished, recalled, started, warm
from kit.graphs import chain, graph, model, node, patched
from kit.loops import COSTS_THE_SAME, PAYS, order_of_work, sampled, sent
from kit.plant import Plant, resets, sends
from nodeloom.graph_import.handles import Role
from nodeloom.graph_import.types import SAMPLER_STATE
from nodeloom.runtime.ids import ExecutorId, RequestId
from nodeloom.runtime.scheduler.actions import CancelSent, Drop, Outcome
from nodeloom.runtime.scheduler.events import ModelsDropped
from nodeloom.runtime.scheduler.invariants import check_scheduler
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig

VAE = model("m", Role.VAE, size_bytes=10**6)
CONTROL = model("c", Role.CONTROLNET, size_bytes=10**6)
GPU0 = ExecutorId("gpu0")


@pytest.fixture
def plant() -> Iterator[Plant]:
    """Chains of up to 4 batches behind the one that runs."""
    plant = Plant(SchedulerConfig(max_ahead=4))
    yield plant
    check_scheduler(plant.scheduler)


# who gets a chain -------------------------------------------------------------------------------


def test_an_idle_cluster_gets_the_rest_of_a_request_at_once_and_in_order() -> None:
    plant = Plant(SchedulerConfig(max_ahead=16))
    plant.join("gpu0")
    plant.arrive("first", sampled(1, DENOISER, vae=VAE))
    plant.run_all()
    plant.arrive("a", sampled(3, DENOISER, vae=VAE))
    nodes = ["begin", "s0", "s1", "s2", "end", "decode", "save"]
    assert sent(plant, "gpu0") == [f"a/{name}" for name in nodes]
    assert order_of_work(plant, "gpu0") == [f"a/{name}" for name in nodes]
    assert plant.outcome("a") == Outcome.SUCCESS
    plant.assert_empty()


def test_no_more_is_sent_ahead_than_may_be_and_half_of_it_is_topped_up(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(20, DENOISER))
    assert sent(plant, "gpu0") == [f"a/s{i}" for i in range(5)]
    assert sends(plant.report("gpu0")) == []
    assert sends(plant.report("gpu0")) == [("gpu0", ["a/s5"]), ("gpu0", ["a/s6"])]
    plant.run_all()
    plant.assert_empty()


def test_without_anything_ahead_the_executor_asks_for_every_node() -> None:
    plant = Plant(SchedulerConfig(max_ahead=0))
    plant.join("gpu0")
    plant.arrive("a", chain(3, DENOISER))
    assert sent(plant, "gpu0") == ["a/s0"]


def test_strict_mode_has_chains_too_of_single_calls() -> None:
    plant = Plant(SchedulerConfig(is_strict=True, max_ahead=2))
    plant.join("gpu0")
    plant.arrive("a", chain(3, DENOISER))
    plant.arrive("b", chain(3, DENOISER), number=1.0)
    assert sent(plant, "gpu0") == ["a/s0", "a/s1", "a/s2"]
    assert order_of_work(plant, "gpu0") == [f"{r}/s{i}" for r in "ab" for i in range(3)]


def test_what_needs_another_executors_values_is_not_sent_ahead(plant: Plant) -> None:
    plant.join("gpu0")
    plant.join("gpu1")
    plant.arrive("a", graph(node("x", "op"), node("y", "op"), node("z", "op_z", reads=["x", "y"])))
    assert (sent(plant, "gpu0"), sent(plant, "gpu1")) == (["a/x"], ["a/y"])
    plant.run_all()
    assert plant.outcome("a") == Outcome.SUCCESS


@pytest.mark.parametrize("lora", [None, "l"])
def test_a_node_that_needs_a_load_or_a_switch_is_not_sent_ahead(
    plant: Plant, lora: str | None
) -> None:
    plant.join("gpu0")
    other = patched(DENOISER, lora) if lora else model("other", size_bytes=10**6)
    nodes = [
        node("s0", "denoise", ref=DENOISER, gives=[SAMPLER_STATE]),
        node("s1", "denoise", ref=other, reads=["s0"], gives=[SAMPLER_STATE]),
    ]
    plant.arrive("a", graph(*nodes))
    assert sent(plant, "gpu0") == ["a/s0"]
    plant.report("gpu0")
    assert sent(plant, "gpu0") == ["a/s1"]


# what clients hear ------------------------------------------------------------------------------


def test_a_link_is_told_of_when_it_begins_and_not_when_it_is_sent(plant: Plant) -> None:
    plant.join("gpu0")
    assert started(plant.arrive("a", chain(3, DENOISER))) == ["a/s0"]
    for index in range(2):
        actions = plant.report("gpu0")
        assert (finished(actions), started(actions)) == ([f"a/s{index}"], [f"a/s{index + 1}"])
    assert started(plant.report("gpu0")) == []


def test_a_link_that_had_begun_when_it_was_recalled_is_told_of_and_done(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(3, DENOISER))
    first = plant.finish("gpu0")  # on its way; the executor is at s1 by now
    assert recalled(plant, plant.arrive("front", chain(1, None), number=-1.0)) == ["a/s1", "a/s2"]
    assert started(plant.happen(first)) == []
    actions = plant.report("gpu0")
    assert (started(actions), finished(actions)) == (["a/s1"], ["a/s1"])
    assert order_of_work(plant, "gpu0") == ["front/s0", "a/s2"]
    plant.assert_empty()


# who ends it ------------------------------------------------------------------------------------


def test_a_node_of_an_earlier_request_ends_the_chain_at_the_next_boundary(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(4, DENOISER))
    actions = plant.arrive("front", chain(1, None), number=-1.0)
    assert recalled(plant, actions) == ["a/s1", "a/s2", "a/s3"]
    assert sends(actions) == []
    assert [a for a in actions if isinstance(a, CancelSent)] == []  # s0 runs to its end
    told = [plant.report("gpu0") for _ in range(4)]  # s0 is done, and three come back
    assert finished(told[0]) == ["a/s0"]
    assert [resets(actions) for actions in told] == [[], [], [], []]  # nobody had heard of them
    assert order_of_work(plant, "gpu0") == ["front/s0", "a/s1", "a/s2", "a/s3"]
    plant.assert_empty()


def test_nothing_is_sent_behind_what_was_recalled(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(9, DENOISER))
    plant.arrive("front", chain(1, None), number=-1.0)
    plant.cancel("front")
    for _ in range(4):
        assert sends(plant.report("gpu0")) == []
    assert sends(plant.report("gpu0"))[0] == ("gpu0", ["a/s1"])
    plant.run_all()
    plant.assert_empty()


def test_a_node_of_a_later_request_waits(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(9, DENOISER))
    actions = plant.arrive("later", chain(2, None, "other"), number=1.0)
    assert (recalled(plant, actions), sends(actions)) == ([], [])
    assert order_of_work(plant, "gpu0")[:9] == [f"a/s{i}" for i in range(9)]


def test_a_node_of_the_same_request_that_comes_before_the_next_step_goes_first(
    plant: Plant,
) -> None:
    plant.join("gpu0")
    nodes = [
        node("s0", "denoise", ref=DENOISER),
        node("beside", "op"),
        node("s1", "denoise", ref=DENOISER, reads=["s0"]),
        node("s2", "denoise", ref=DENOISER, reads=["s1"]),
    ]
    plant.arrive("a", graph(*nodes))
    assert sent(plant, "gpu0") == ["a/s0"]
    assert order_of_work(plant, "gpu0") == ["a/s0", "a/beside", "a/s1", "a/s2"]


def test_what_waits_for_another_executor_stops_chains_of_later_requests_too(plant: Plant) -> None:
    plant.join("gpu0")
    big = model("big", size_bytes=10**12)
    plant.arrive("big", chain(2, big), number=-2.0)
    plant.report("gpu0", load_s=1000.0)
    plant.join("gpu1")
    assert sends(plant.arrive("front", chain(1, big), number=-1.0)) == []  # it waits for gpu0
    assert sends(plant.arrive("a", chain(9, DENOISER))) == [("gpu1", ["a/s0"])]


def test_a_later_request_joins_at_a_boundary_where_that_is_measured_to_pay(plant: Plant) -> None:
    beside(plant, PAYS)
    _, *later = sent(plant, "gpu0")
    assert recalled(plant, plant.report("gpu1")) == later != []
    for _ in range(1 + len(later)):
        plant.report("gpu0")
    assert sent(plant, "gpu0")[0] == "a/s1 b/s0"
    plant.run_all()
    plant.assert_empty()


def test_it_waits_where_a_batch_is_no_cheaper(plant: Plant) -> None:
    beside(plant, COSTS_THE_SAME)
    assert recalled(plant, plant.report("gpu1")) == []
    assert order_of_work(plant, "gpu0")[:10] == [*(f"a/s{i}" for i in range(9)), "a/end"]


def test_it_waits_where_batches_may_have_one_call() -> None:
    plant = Plant(SchedulerConfig(max_ahead=4, is_strict=True))
    beside(plant, PAYS)
    assert recalled(plant, plant.report("gpu1")) == []


def test_nobody_joins_a_node_that_is_tried_again_alone(plant: Plant) -> None:
    beside(plant, PAYS)
    link = plant.scheduler.requests[RequestId("a")].nodes
    for state in link.values():
        state.num_deaths = 1
    assert recalled(plant, plant.report("gpu1")) == []


def test_an_idle_executor_takes_over_what_can_run_beside_a_chain(plant: Plant) -> None:
    warm(plant, "gpu0")
    plant.join("gpu1")
    plant.arrive("hold", chain(4, None), number=-1.0)
    plant.arrive(
        "wide", graph(node("x"), node("y0", "op_y", reads=["x"]), node("y1", "op_z", reads=["x"]))
    )
    assert (plant.running("gpu0"), sent(plant, "gpu1")) == (
        ["hold/s0"],
        ["wide/x", "wide/y0", "wide/y1"],
    )
    while plant.running("gpu0") and plant.running("gpu0")[0].startswith("hold"):
        actions = plant.report("gpu0")
    assert recalled(plant, actions) == ["wide/y0", "wide/y1"]
    for _ in range(3):
        plant.report("gpu1")
    assert sorted([*plant.running("gpu0"), *plant.running("gpu1")]) == ["wide/y0", "wide/y1"]
    plant.run_all()
    plant.assert_empty()


def test_an_idle_executor_takes_over_controlnets(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("warm", sampled(1, DENOISER, controls=[CONTROL]), number=-1.0)
    while plant.busy():
        plant.report("gpu0", load_s=0.01)
    plant.arrive("a", sampled(9, DENOISER, controls=[CONTROL]))
    chain_of_one = ["a/begin", "a/c0.0", "a/s0", "a/c1.0", "a/s1"]
    assert sent(plant, "gpu0") == chain_of_one
    # Only ControlNets and what follows one: nothing can run beside the first.
    assert recalled(plant, plant.join("gpu1")) == chain_of_one[1:]
    for _ in chain_of_one:
        plant.report("gpu0")
    assert (plant.running("gpu0"), plant.running("gpu1")) == (["a/s0"], ["a/c0.0"])
    plant.run_all()
    plant.assert_empty()


def test_a_plain_chain_goes_on_beside_an_idle_executor(plant: Plant) -> None:
    warm(plant, "gpu0", "gpu1")
    plant.arrive("a", chain(9, DENOISER))
    assert len(sent(plant, "gpu0")) == 5
    assert recalled(plant, plant.join("gpu2")) == []


def test_requests_that_share_a_chain_part_when_nothing_else_is_left_to_do(plant: Plant) -> None:
    warm(plant, "gpu0", "gpu1")
    plant.arrive("hold0", chain(1, None), number=-2.0)
    plant.arrive("short", chain(2, DENOISER), number=-1.0)
    plant.arrive("a", chain(9, DENOISER))
    plant.arrive("b", chain(9, DENOISER))
    plant.report("gpu0")
    assert sent(plant, "gpu0")[:2] == ["a/s0 b/s0", "a/s1 b/s1"]
    back: list[str] = []
    while plant.running("gpu1"):
        back += recalled(plant, plant.report("gpu1"))
    assert back[-4:] == [f"a/s{i} b/s{i}" for i in range(1, 5)]
    while " " in (sent(plant, "gpu0") + sent(plant, "gpu1"))[0]:
        plant.report(plant.busy()[0])
    assert [len(plant.running(name)) for name in ("gpu0", "gpu1")] == [1, 1]
    assert {plant.running(name)[0][0] for name in ("gpu0", "gpu1")} == {"a", "b"}
    plant.run_all()
    plant.assert_empty()


def test_freeing_models_ends_the_chain_and_it_goes_on_after_that(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(4, DENOISER))
    assert recalled(plant, plant.happen(ModelsDropped())) == ["a/s1", "a/s2", "a/s3"]
    dropped = [[a for a in plant.report("gpu0") if isinstance(a, Drop)] for _ in range(4)]
    assert dropped == [[], [], [], [Drop(executor=GPU0)]]
    assert order_of_work(plant, "gpu0") == ["a/s1", "a/s2", "a/s3"]
