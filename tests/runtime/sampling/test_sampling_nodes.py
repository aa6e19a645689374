"""Guiders, patches of the guidance, noise, model samplings and schedules against ComfyUI's."""

from __future__ import annotations

import pytest
from kit.goldens import each_golden_set, golden_folder

from conformance import model_sampling, sampler_nodes, schedules
from conformance.case import Cases

OURS = ("_patch/", "_guider/", "_addnoise/")
KNOWN_TO_DIFFER = (
    "kl_optimal",
    "cascade",
    "PerpNeg",
    "Mahiro",
    "eps_guider/first3steps",
)


def failures(cases: Cases, golden_set: str, parts: tuple[str, ...] = ("",)) -> list[str]:
    return [
        case.name
        for case in cases(golden_folder(golden_set))
        if any(part in case.name for part in parts)
        and not any(part in case.name for part in KNOWN_TO_DIFFER if "Guider" not in case.name)
        and not case.run().passes
    ]


def test_guiders_patches_and_noise() -> None:
    assert failures(sampler_nodes.cases, "full", OURS) == []


@each_golden_set
def test_model_samplings(golden_set: str) -> None:
    assert failures(model_sampling.cases, golden_set) == []


@pytest.mark.parametrize("table", ["basic_scheduler", "ksampler_advanced", "Scheduler", "percent"])
def test_schedules(table: str) -> None:
    assert failures(schedules.cases, "full", (f"/{table}",)) == []
