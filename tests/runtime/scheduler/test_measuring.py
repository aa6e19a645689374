"""What a report teaches: each thing its own seconds, and nothing where nothing was done."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from kit.graphs import chain, model, patched
from kit.loops import STATE_SHAPE, sampled, teach
from kit.plant import Plant, fail
from nodeloom.runtime.ids import ExecutorId
from nodeloom.runtime.protocol import CallCancelled, CallResult, NodeCall
from nodeloom.runtime.scheduler.profiles import MAX_SHAPES, Profiles
from nodeloom.runtime.scheduler.scheduler import SchedulerConfig

DENOISER = model("m")


def alone_s(plant: Plant) -> float | None:
    """What was learned of single calls that read nothing; known from the second one on."""
    return plant.scheduler.profiles.batches("denoise", DENOISER.key, ()).seconds_s(1)


def test_loading_switching_and_waiting_are_no_part_of_a_call(plant: Plant) -> None:
    ref = patched(DENOISER, "l")
    plant.join("gpu0")
    plant.arrive("a", chain(1, ref))
    report = plant.finish("gpu0", run_s=0.5, load_s=3.0, switch_s=0.25)
    report = msgspec.structs.replace(report, run_s=report.run_s + 7.0, waited_s=7.0)
    plant.happen(report)
    profiles = plant.scheduler.profiles
    assert profiles.load(ref.key).seconds_s == pytest.approx(3.0)
    assert profiles.switch(ref.key).seconds_s == pytest.approx(0.25)
    assert profiles.call("denoise", ref.key).seconds_s == pytest.approx(0.5)
    plant.arrive("b", chain(1, ref))
    plant.report("gpu0", run_s=0.5)
    assert alone_s(plant) == pytest.approx(0.5)


def test_sizes_are_compared_by_the_work_of_the_device_where_it_is_told(plant: Plant) -> None:
    plant.join("gpu0")
    for name in "ab":
        plant.arrive(name, chain(1, DENOISER))
        report = plant.finish("gpu0", run_s=9.0)
        plant.happen(msgspec.structs.replace(report, worked_s=0.5))
    assert alone_s(plant) == pytest.approx(0.5)
    assert plant.scheduler.profiles.call("denoise", DENOISER.key).seconds_s > 5.0


def test_a_batch_teaches_what_it_took_and_what_one_of_its_calls_did(plant: Plant) -> None:
    plant.join("gpu0")
    for number in range(2):
        plant.arrive("hold" + str(number), chain(1, None), number=number - 9.0)
        for name in "ab":
            plant.arrive(f"{name}{number}", chain(1, DENOISER))
        plant.report("gpu0")
        assert plant.running("gpu0") == [f"a{number}/s0", f"b{number}/s0"]
        plant.report("gpu0", run_s=0.8)
    profiles = plant.scheduler.profiles
    assert profiles.call("denoise", DENOISER.key).seconds_s == pytest.approx(0.4)
    costs = profiles.batches("denoise", DENOISER.key, ())
    assert costs.seconds_s(2) == pytest.approx(0.8)
    assert costs.seconds_s(1) is None


def test_what_calls_read_tells_batches_apart(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", sampled(3, DENOISER))
    plant.run_all()
    assert alone_s(plant) is None
    costs = plant.scheduler.profiles.batches("denoise", DENOISER.key, STATE_SHAPE)
    assert costs.seconds_s(1) == pytest.approx(0.1)


def test_links_of_a_chain_are_measured_by_what_they_read_as_well() -> None:
    plant = Plant(SchedulerConfig(max_ahead=8))
    plant.join("gpu0")
    plant.arrive("a", sampled(3, DENOISER))
    plant.run_all()
    plant.arrive("b", sampled(3, DENOISER))
    plant.run_all()
    costs = plant.scheduler.profiles.batches("denoise", DENOISER.key, STATE_SHAPE)
    assert costs.seconds_s(1) == pytest.approx(0.1)


@pytest.mark.parametrize("result", [fail, lambda _: CallCancelled()])
def test_a_batch_of_which_a_call_was_not_done_teaches_only_what_was_loaded(
    plant: Plant, result: Callable[[NodeCall], CallResult]
) -> None:
    teach(plant, DENOISER, {2: 0.2}, shape=())
    plant.arrive("a", chain(1, DENOISER))
    plant.arrive("b", chain(1, DENOISER))
    plant.join("gpu0")
    good = plant.succeed("gpu0")
    plant.report(
        "gpu0", run_s=9.0, load_s=3.0, result=lambda c: (result if c.request_id == "a" else good)(c)
    )
    profiles = plant.scheduler.profiles
    assert profiles.load(DENOISER.key).seconds_s == pytest.approx(3.0)
    assert not profiles.call("denoise", DENOISER.key).is_measured
    assert profiles.batches("denoise", DENOISER.key, ()).seconds_s(2) == pytest.approx(0.2)


def test_shapes_that_clients_choose_do_not_pile_up() -> None:
    profiles = Profiles()
    kept = profiles.batches("denoise", DENOISER.key, STATE_SHAPE)
    first = profiles.batches("denoise", DENOISER.key, ((0,),))
    for side in range(MAX_SHAPES):
        profiles.batches("denoise", DENOISER.key, ((side + 1,),))
        assert profiles.batches("denoise", DENOISER.key, STATE_SHAPE) is kept
    assert profiles.batches("denoise", DENOISER.key, ((0,),)) is not first


def test_what_is_left_of_a_chain_is_reckoned_anew_when_its_next_batch_begins() -> None:
    plant = Plant(SchedulerConfig(max_ahead=4))
    plant.join("gpu0")
    plant.arrive("a", chain(3, DENOISER))  # loading it is guessed at two seconds
    slot = plant.scheduler.executors[ExecutorId("gpu0")]
    guessed_s = DENOISER.key.file.size_bytes / 1e9
    assert slot.remaining_s(plant.now_s) > guessed_s
    plant.report("gpu0")
    assert slot.remaining_s(plant.now_s) < guessed_s
    first, second = slot.batches()
    assert second.due_s - first.due_s == pytest.approx(second.duration_s)
