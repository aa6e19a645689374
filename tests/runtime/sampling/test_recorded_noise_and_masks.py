"""Noise, noise masks and what goes into inpainting models, as ComfyUI has them."""

from __future__ import annotations

import pytest
from kit.conforming import failures
from kit.goldens import each_golden_set

from conformance import inpaint, noise


@each_golden_set
def test_recorded_noise_of_every_kind(golden_set: str) -> None:
    count, failed = failures(noise.cases, golden_set)
    assert count >= 30
    assert failed == []


@each_golden_set
@pytest.mark.parametrize(
    ("part", "least"), [("reshape_mask", 13), ("diffdiff", 3), ("concat_cond", 4), ("_sde/", 1)]
)
def test_recorded_masks_and_masked_runs(golden_set: str, part: str, least: int) -> None:
    count, failed = failures(inpaint.cases, golden_set, part)
    assert count >= least
    assert failed == []
