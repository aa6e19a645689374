"""Chains of batches of several calls: what goes on together, and how long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.chains import DENOISER, recalled, shared, warm
from kit.graphs import chain, graph, model, node, side_by_side
from kit.loops import COSTS_THE_SAME, order_of_work, sampled, sent, teach
from kit.plant import Plant
from nodeloom.graph_import.handles import Role
from nodeloom.graph_import.ir import Graph
from nodeloom.graph_import.types import LATENT, MASK
from nodeloom.runtime.scheduler.actions import AnyAction
from nodeloom.runtime.scheduler.batch_costs import RECENT
from nodeloom.runtime.scheduler.invariants import check_scheduler
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig

VAE = model("m", Role.VAE, size_bytes=10**6)


@pytest.fixture
def plant() -> Iterator[Plant]:
    """Chains of up to 4 batches behind the one that runs."""
    plant = Plant(SchedulerConfig(max_ahead=4))
    yield plant
    check_scheduler(plant.scheduler)


# batches of several -----------------------------------------------------------------------------


def test_requests_that_share_a_batch_go_on_together(plant: Plant) -> None:
    shared(plant)
    assert order_of_work(plant, "gpu0") == [f"a/s{i} b/s{i}" for i in range(6)]
    plant.assert_empty()


def test_two_loops_of_one_request_go_on_together(plant: Plant) -> None:
    warm(plant, "gpu0")
    plant.arrive("a", side_by_side("xy", 4, DENOISER))
    assert order_of_work(plant, "gpu0") == [f"a/x{i} a/y{i}" for i in range(4)]


def test_a_chain_of_batches_ends_when_they_are_found_not_to_pay(plant: Plant) -> None:
    shared(plant, num_steps=2 * RECENT)
    assert recalled(plant, plant.report("gpu0", run_s=0.1)) == []
    actions: list[AnyAction] = []
    while not recalled(plant, actions):
        actions = plant.report("gpu0", run_s=9.0)
    assert len(plant.running("gpu0")) == 2  # it is not disturbed
    plant.report("gpu0", run_s=9.0)
    order = order_of_work(plant, "gpu0")
    assert len(order) >= 2
    assert not any(" " in batch for batch in order)


def test_a_chain_of_batches_ends_before_the_other_executor_has_nothing_to_do(plant: Plant) -> None:
    warm(plant, "gpu0", "gpu1")
    plant.arrive("hold", chain(1, None), number=-2.0)
    plant.arrive("short", sampled(2, DENOISER, vae=VAE), number=-1.0)
    plant.arrive("a", chain(9, DENOISER))
    plant.arrive("b", chain(9, DENOISER))
    plant.report("gpu0")
    assert sent(plant, "gpu0")[:2] == ["a/s0 b/s0", "a/s1 b/s1"]
    back: list[str] = []
    while not back:
        back = [name for name in recalled(plant, plant.report("gpu1")) if " " in name]
    assert plant.running("gpu1")[0].startswith("short/")  # it still works for that one
    assert back[0] == "a/s1 b/s1"


def test_a_chain_goes_on_beside_a_request_that_is_left_to_another_executor(plant: Plant) -> None:
    warm(plant, "gpu0", "gpu1")
    plant.arrive("hold0", chain(1, None), number=-2.0)
    plant.arrive("hold1", chain(1, None), number=-1.0)
    plant.arrive("a", chain(9, DENOISER))
    plant.report("gpu0")
    assert sent(plant, "gpu0")[:2] == ["a/s0", "a/s1"]
    assert recalled(plant, plant.arrive("b", chain(9, DENOISER), number=1.0)) == []
    plant.report("gpu1")
    assert sent(plant, "gpu1")[:2] == ["b/s0", "b/s1"]


def test_what_was_not_measured_to_pay_is_not_shared_because_the_steps_were(plant: Plant) -> None:
    warm(plant, "gpu0")
    plant.arrive("warm", sampled(1, DENOISER, vae=VAE), number=-1.0)
    plant.run_all()
    teach(plant, VAE, COSTS_THE_SAME, op="vae_decode")
    plant.arrive("hold", chain(1, None), number=-1.0)
    shared_and_not = graph(
        node("s0", "denoise", ref=DENOISER),
        node("s1", "denoise", ref=DENOISER, reads=["s0"]),
        node("decode", "vae_decode", ref=VAE, reads=["s1"]),
    )
    plant.arrive("a", shared_and_not)
    plant.arrive("b", shared_and_not)
    plant.report("gpu0")
    order = order_of_work(plant, "gpu0")
    assert order == ["a/s0 b/s0", "a/s1 b/s1", "a/decode", "b/decode"]


@pytest.mark.parametrize(("type_of_b", "is_shared"), [(MASK, True), (LATENT, False)])
def test_calls_that_read_other_shapes_are_not_shared(
    plant: Plant, type_of_b: str, is_shared: bool
) -> None:
    def reads_late(type_: str) -> Graph:
        """The first step reads nothing; the second one also what `x` made."""
        return graph(
            node("x", "op_x", gives=[type_]),
            node("s0", "denoise", ref=DENOISER),
            node("s1", "denoise", ref=DENOISER, reads=["s0", "x"]),
        )

    warm(plant, "gpu0")
    plant.arrive("hold", chain(1, None), number=-1.0)
    plant.join("gpu1")
    plant.arrive("a", reads_late(MASK))
    plant.arrive("b", reads_late(type_of_b))
    plant.report("gpu1")
    plant.report("gpu1")
    plant.arrive("busy", chain(1, None), number=1.0)
    plant.report("gpu0")
    assert sent(plant, "gpu1") == ["busy/s0"]
    assert sent(plant, "gpu0") == ["a/s0 b/s0", "a/s1 b/s1"][: 1 + is_shared]
    plant.run_all()
    plant.assert_empty()
