"""A schedule may repeat a sigma (few distinct timesteps, many steps): a step of no length."""

from __future__ import annotations

import numpy as np
import pytest
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.base import Course, Estimate, SamplerState
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES, sampler
from nodeloom.graph_import.sampling.schedules import ksampler_sigmas

PLANNED = [name for name in SAMPLER_NAMES if not sampler(name).is_adaptive]


def no_noise(like: np.ndarray, sigma_from: float, sigma_to: float) -> np.ndarray:
    """What a stochastic sampler draws here."""
    return np.zeros_like(like)


def drawn(name: str, sigmas: tuple[float, ...]) -> np.ndarray:
    """Sample with a denoiser that always says 0.25, without sampler noise."""
    state = SamplerState(x=np.linspace(-1.0, 1.0, 16) * sigmas[0])
    course = Course(sigmas, family("sd15").model_sampling)
    for evaluation in sampler(name).plan(course):
        denoised = np.full(16, 0.25)
        state = sampler(name).update(
            state, Estimate(denoised, denoised), evaluation, course, no_noise
        )
    return np.asarray(state.x)


@pytest.mark.parametrize("name", [name for name in PLANNED if name != "dpm_fast"])
def test_a_step_of_no_length_changes_nothing(name: str) -> None:
    """UniPC ends at a sigma of 0.001, with as much noise."""
    repeated = (4.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.0)
    assert np.allclose(drawn(name, repeated), 0.25, atol=1.1e-3 if "uni_pc" in name else 1e-8)


@pytest.mark.parametrize("name", PLANNED)
def test_a_schedule_that_repeats_sigmas_can_be_sampled(name: str) -> None:
    sigmas = ksampler_sigmas(family("sd15").model_sampling, "simple", 20, 0.01, name)
    assert len(set(sigmas)) < len(sigmas)
    assert np.isfinite(drawn(name, sigmas)).all()
