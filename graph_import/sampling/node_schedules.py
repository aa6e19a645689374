"""Sigma schedules of nodes of their own, in ComfyUI's parameters: falling floats, the last 0.0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from .model_sampling import ModelSampling
from .schedules import MAX_SCHEDULE_STEPS, beta_shaped

TURBO_TIMESTEPS: Final = 10  # a distilled model knows every hundredth timestep
VP_EPSILON: Final = 1e-3


def beta_sampling_sigmas(
    model_sampling: ModelSampling, steps: int, alpha: float, beta: float
) -> tuple[float, ...]:
    """The table's entries at the quantiles of Beta(alpha, beta)."""
    return tuple(beta_shaped(model_sampling, steps, alpha, beta))


def turbo_sigmas(model_sampling: ModelSampling, steps: int, denoise: float) -> tuple[float, ...]:
    """The first `steps` of the ten timesteps of SD Turbo, from the share `denoise` of them on.

    Source: ADD (arXiv 2311.17042), section 3.1: every n-th of the teacher's timesteps.
    """
    first = TURBO_TIMESTEPS - int(TURBO_TIMESTEPS * denoise)
    known = [round(999 - 100 * index) for index in range(TURBO_TIMESTEPS)]
    chosen = known[first : first + steps]
    return (*(model_sampling.sigma_at(timestep) for timestep in chosen), 0.0)


def percent_sigma(model_sampling: ModelSampling, percent: float, *, is_actual: bool) -> float:
    """The sigma at a share of the sampling; an actual one is within the model's noise levels."""
    sigma = model_sampling.percent_to_sigma(percent)
    if is_actual and percent <= 0.0:
        return model_sampling.sigma_max
    if is_actual and percent >= 1.0:
        return model_sampling.sigma_min
    return sigma
