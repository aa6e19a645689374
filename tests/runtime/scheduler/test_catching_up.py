"""Later requests that go before an earlier one, to be sampled together with it."""

from __future__ import annotations

import gc
from collections.abc import Mapping

from kit.graphs import chain, graph, model, node, patched
from kit.loops import COSTS_THE_SAME, PAYS, order_of_work, sampled, teach
from kit.plant import Plant
from nodeloom.graph_import.handles import Role
from nodeloom.graph_import.types import SAMPLER_STATE
from nodeloom.runtime.ids import ExecutorId
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig

DENOISER = model("m", size_bytes=10**6)
TEXT = model("m", Role.TEXT_ENCODER, size_bytes=10**6)


def leading(plant: Plant, costs: Mapping[int, float] = PAYS, *, num_steps: int = 9) -> None:
    """`a` has just been sent its first step; a text takes a tenth of a second, as a step does."""
    plant.join("gpu0")
    plant.arrive("warm", sampled(2, DENOISER, text=TEXT), number=-1.0)
    plant.run_all()
    teach(plant, DENOISER, costs)
    plant.arrive("a", sampled(num_steps, DENOISER, text=TEXT))
    plant.report("gpu0")
    plant.report("gpu0")
    assert plant.running("gpu0") == ["a/s0"]


def test_what_a_later_request_does_before_its_loop_goes_first_and_it_joins(plant: Plant) -> None:
    leading(plant)
    plant.arrive("b", sampled(9, DENOISER, text=TEXT), number=1.0)
    assert order_of_work(plant, "gpu0")[:5] == [
        "a/s0",
        "b/text",
        "b/begin",
        "a/s1 b/s0",
        "a/s2 b/s1",
    ]


def test_it_waits_where_batches_do_not_pay(plant: Plant) -> None:
    leading(plant, COSTS_THE_SAME)
    plant.arrive("b", sampled(9, DENOISER, text=TEXT), number=1.0)
    order = order_of_work(plant, "gpu0")
    assert order[:10] == [*(f"a/s{i}" for i in range(9)), "a/end"]


def test_it_catches_up_for_a_trial(plant: Plant) -> None:
    leading(plant, {1: 0.1})
    plant.arrive("b", sampled(9, DENOISER, text=TEXT), number=1.0)
    assert "a/s1 b/s0" in order_of_work(plant, "gpu0")


def test_in_strict_mode_nobody_catches_up() -> None:
    plant = Plant(SchedulerConfig(is_strict=True, max_ahead=0))
    leading(plant)
    plant.arrive("b", sampled(9, DENOISER, text=TEXT), number=1.0)
    order = order_of_work(plant, "gpu0")
    assert order[:10] == [*(f"a/s{i}" for i in range(9)), "a/end"]


def test_no_more_catch_up_than_may_share_a_batch() -> None:
    plant = Plant(SchedulerConfig(max_batch=4, max_ahead=0))
    leading(plant, num_steps=30)
    for index in range(9):
        plant.arrive(f"b{index}", sampled(30, DENOISER, text=TEXT), number=1.0 + index)
    order = order_of_work(plant, "gpu0")
    first = next(i for i, batch in enumerate(order) if "/s0 " in batch or "/s1 " in batch)
    begun = [batch for batch in order[:first] if batch.endswith("/begin")]
    assert begun == ["b0/begin", "b1/begin", "b2/begin"]
    assert order[first] == "a/s1 b0/s0 b1/s0 b2/s0"


def test_nobody_catches_up_whom_another_executor_should_take(plant: Plant) -> None:
    own, others = patched(DENOISER, "a"), patched(DENOISER, "b")
    plant.join("gpu0")
    plant.arrive("warm", sampled(2, own, text=TEXT), number=-9.0)
    plant.run_all()
    plant.join("gpu1")
    for number, ref in enumerate((own, others)):
        plant.arrive(f"warm{number}", chain(40, ref), number=number - 9.0)
    plant.run_all()
    table = [plant.workers[ExecutorId(name)].resident[DENOISER.key] for name in ("gpu0", "gpu1")]
    assert table == [own.patches, others.patches]
    teach(plant, DENOISER, PAYS)
    plant.arrive("hold0", chain(1, None), number=-2.0)
    plant.arrive("hold1", chain(1, None), number=-1.0)  # for long
    plant.arrive("a", sampled(9, own, text=TEXT))
    while plant.running("gpu0") != ["a/s0"]:
        plant.report("gpu0")
    plant.arrive("b", sampled(9, own, text=TEXT), number=1.0)
    assert order_of_work(plant, "gpu0")[:3] == ["a/s0", "a/s1", "a/s2"]


def test_a_node_that_takes_long_beside_what_is_left_to_share_does_not_go_first(
    plant: Plant,
) -> None:
    leading(plant)
    slow = graph(
        node("slow", "op_slow"),
        node("begin", "sample_begin", reads=["slow"], gives=[SAMPLER_STATE]),
        *[
            node(
                f"s{i}",
                "denoise",
                ref=DENOISER,
                reads=[f"s{i - 1}" if i else "begin"],
                gives=[SAMPLER_STATE],
            )
            for i in range(9)
        ],
    )
    plant.scheduler.profiles.call("op_slow", None).learn(0.9)
    plant.arrive("b", slow, number=1.0)
    assert order_of_work(plant, "gpu0")[:2] == ["a/s0", "a/s1"]


def test_a_request_that_is_nearly_sampled_is_not_held_up(plant: Plant) -> None:
    leading(plant)
    for _ in range(8):
        plant.report("gpu0")
    assert plant.running("gpu0") == ["a/s8"]
    plant.arrive("b", sampled(9, DENOISER, text=TEXT), number=1.0)
    assert order_of_work(plant, "gpu0")[:3] == ["a/s8", "a/end", "b/text"]


def test_a_request_of_another_model_takes_its_turn(plant: Plant) -> None:
    leading(plant)
    other = model("n", size_bytes=10**6)
    plant.arrive("b", sampled(9, other, text=TEXT), number=1.0)
    order = order_of_work(plant, "gpu0")
    assert order[:10] == [*(f"a/s{i}" for i in range(9)), "a/end"]


def test_what_comes_after_a_loop_takes_its_turn(plant: Plant) -> None:
    leading(plant)
    plant.arrive("b", sampled(4, DENOISER, text=TEXT), number=1.0)
    order = order_of_work(plant, "gpu0")
    assert order[:5] == ["a/s0", "b/text", "b/begin", "a/s1 b/s0", "a/s2 b/s1"]
    assert order.index("b/end") > order.index("a/end")


def test_nobody_catches_up_with_a_later_request(plant: Plant) -> None:
    leading(plant)
    plant.arrive("front", sampled(9, DENOISER, text=TEXT), number=-1.0)
    plant.arrive("second", chain(1, None), number=-0.5)
    assert order_of_work(plant, "gpu0")[:4] == [
        "a/s0",
        "front/text",
        "front/begin",
        "front/s0 a/s1",
    ]


def test_newcomers_can_not_keep_an_earlier_request_waiting(plant: Plant) -> None:
    leading(plant, num_steps=30)
    for index in range(400):
        plant.arrive(f"b{index:03}", sampled(2, DENOISER, text=TEXT), number=1.0 + index)
        plant.report("gpu0")
        if "a" in plant.ended:
            break
    assert "a" in plant.ended


def test_chains_end_for_who_catches_up() -> None:
    plant = Plant(SchedulerConfig(max_ahead=8))
    plant.join("gpu0")
    plant.arrive("warm", sampled(2, DENOISER, text=TEXT), number=-1.0)
    plant.run_all()
    teach(plant, DENOISER, PAYS)
    plant.arrive("a", sampled(9, DENOISER, text=TEXT))
    plant.report("gpu0")
    plant.report("gpu0")
    plant.arrive("b", sampled(9, DENOISER, text=TEXT), number=1.0)
    order = order_of_work(plant, "gpu0")
    together = next(index for index, batch in enumerate(order) if batch.endswith(" b/s0"))
    assert order[together - 2 : together] == ["b/text", "b/begin"]
    assert together <= 4  # after a step or two, far from the end of a's chain
    plant.assert_empty()


def test_loops_of_requests_that_are_over_are_forgotten(plant: Plant) -> None:
    plant.join("gpu0")
    for index in range(3):
        plant.arrive(f"r{index}", sampled(2, patched(DENOISER, f"l{index}"), text=TEXT))
    book = plant.scheduler.loops
    assert len(book._kinds) == 3
    plant.run_all()
    gc.collect()
    assert len(book._kinds) == 0
