"""How large a batch may be beside executors that have little else to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.chains import DENOISER, warm
from kit.graphs import chain, model, side_by_side
from kit.loops import teach
from kit.plant import Plant, sends
from nodeloom.runtime.scheduler.actions import AnyAction
from nodeloom.runtime.scheduler.invariants import check_scheduler

OTHER = model("other", size_bytes=10**6)
CHEAP = {size: 0.1 + 0.001 * size for size in (1, 2, 4, 8)}


@pytest.fixture
def plant() -> Iterator[Plant]:
    """Two executors with the model; batches of it take little more than a call."""
    plant = Plant()
    warm(plant, "gpu0", "gpu1")
    for shape in ((), ((1, 4, 8, 8),)):
        teach(plant, DENOISER, CHEAP, shape=shape)
    yield plant
    check_scheduler(plant.scheduler)


def arrive(plant: Plant, *names: str, num_steps: int = 6) -> None:
    """Requests that sample for so many steps, once executors are free again."""
    for number, name in enumerate(names):
        plant.arrive(name, chain(num_steps, DENOISER), number=float(number))


def hold(plant: Plant, *executors: str) -> None:
    """Each executor runs something else and is free with its next report."""
    for index, name in enumerate(executors):
        plant.arrive(f"hold-{name}", chain(1, None), number=-9.0 + index)


def test_two_requests_are_not_one_batch_where_two_executors_could_run_them(plant: Plant) -> None:
    hold(plant, "gpu0", "gpu1")
    arrive(plant, "a", "b")
    assert sends(plant.report("gpu0")) == [("gpu0", ["a/s0"])]
    assert sends(plant.report("gpu1")) == [("gpu1", ["b/s0"])]


def test_a_batch_leaves_one_request_for_the_other_executor(plant: Plant) -> None:
    hold(plant, "gpu0", "gpu1")
    arrive(plant, "a", "b", "c", "d")
    assert sends(plant.report("gpu0")) == [("gpu0", ["a/s0", "b/s0", "c/s0"])]


def test_requests_part_once_no_others_are_left(plant: Plant) -> None:
    hold(plant, "gpu0", "gpu1")
    arrive(plant, "short", num_steps=2)
    arrive(plant, "a", "b")
    actions = [*plant.report("gpu0"), *plant.report("gpu1")]
    while "short" not in plant.ended:
        actions += plant.report(plant.busy()[0])
    assert any(len(calls) == 2 for _, calls in sends(actions))
    later: list[AnyAction] = []
    while plant.busy():
        later += plant.report(plant.busy()[0])
    assert {tuple(calls) for _, calls in sends(later)} >= {("a/s5",), ("b/s5",)}
    assert all(len(calls) == 1 for _, calls in sends(later))


def test_an_executor_without_the_model_is_left_nothing(plant: Plant) -> None:
    plant.join("gpu2")
    plant.lose("gpu1")
    hold(plant, "gpu0", "gpu2")
    arrive(plant, "a", "b")
    assert sends(plant.report("gpu0")) == [("gpu0", ["a/s0", "b/s0"])]


def test_a_loop_on_another_model_keeps_an_executor_busy_that_has_both(plant: Plant) -> None:
    hold(plant, "gpu0", "gpu1")
    arrive(plant, "a", "b")
    plant.arrive("else", chain(9, OTHER), number=5.0)
    assert sends(plant.report("gpu0")) == [("gpu0", ["a/s0"])]  # nobody has that model
    plant.run_all()
    for index in range(2):
        plant.arrive(f"warm-{index}", chain(40, OTHER))
    plant.run_all()
    assert all(OTHER.key in worker.resident for worker in plant.workers.values())
    plant.arrive("hold", chain(1, None), number=-2.0)
    plant.arrive("hold-too", chain(1, None), number=-1.0)
    plant.arrive("c", chain(6, DENOISER))
    plant.arrive("d", chain(6, DENOISER))
    plant.arrive("else-again", chain(9, OTHER), number=5.0)
    assert sends(plant.report("gpu0")) == [("gpu0", ["c/s0", "d/s0"])]


def test_samplings_side_by_side_in_one_request_count_each(plant: Plant) -> None:
    hold(plant, "gpu0", "gpu1")
    plant.arrive("a", side_by_side("wxyz", 3, DENOISER))
    assert sends(plant.report("gpu0")) == [("gpu0", ["a/w0", "a/x0", "a/y0"])]


def test_what_is_called_once_is_batched_as_it_pays(plant: Plant) -> None:
    hold(plant, "gpu0", "gpu1")
    for name in "ab":
        plant.arrive(name, chain(1, DENOISER))
    assert sends(plant.report("gpu0")) == [("gpu0", ["a/s0", "b/s0"])]


def test_a_request_that_ends_is_not_counted_any_more(plant: Plant) -> None:
    hold(plant, "gpu0", "gpu1")
    arrive(plant, "a", "b", "c")
    plant.cancel("c")
    assert plant.scheduler.loops.widths == {DENOISER.key: 2}
    assert sends(plant.report("gpu0")) == [("gpu0", ["a/s0"])]
    plant.run_all()
    assert plant.scheduler.loops.widths == {}
