"""What a report teaches: each thing its own seconds, and nothing where nothing was done."""

from __future__ import annotations

import msgspec
import pytest
from kit.graphs import chain, graph, model, node, patched
from kit.loops import PAYS, STATE_SHAPE, sampled, teach
from kit.plant import Plant, fail
from nodeloom.runtime.protocol import CallCancelled
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


def test_a_batch_teaches_what_it_took_and_what_one_of_its_calls_did(plant: Plant) -> None:
    plant.arrive("a", chain(1, DENOISER))
    plant.arrive("b", chain(1, DENOISER))
    plant.join("gpu0")
    for _ in range(2):
        plant.report("gpu0", run_s=0.8)
        plant.arrive("hold", chain(1, None))
        plant.arrive("c", chain(1, DENOISER))
        plant.arrive("d", chain(1, DENOISER))
        if "c" in plant.ended:
            break
        plant.report("gpu0")
        plant.run_all()
        del plant.ended, plant.started
        break
    assert plant.scheduler.profiles.call("denoise", DENOISER.key).seconds_s == pytest.approx(0.4)
