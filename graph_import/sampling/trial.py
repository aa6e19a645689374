"""A sampler tried on a number, before a model runs: what can't be computed is known there."""

from __future__ import annotations

import math
from functools import lru_cache

from .base import Course, Estimate, Sampler, SamplerState
from .float32 import float32

_ESTIMATE = Estimate(0.5, 0.25)


@lru_cache(maxsize=64)
def try_sampler(named: Sampler, course: Course) -> None:
    """Take all steps of a course with a number for latents; an adaptive sampler isn't tried.

    Raises: ValueError: a step has no finite result in float32, such as those to noise levels that a
    flow doesn't have, or with options of which a power overflows.
    """
    if named.is_adaptive or course.num_steps == 0:
        return
    state, tried = SamplerState(x=course.sigmas[0]), course.sigmas
    try:
        _require_float32(state)
        for evaluation in named.plan(course):
            tried = course.sigmas[evaluation.step : evaluation.step + 2]
            state = named.update(state, _ESTIMATE, evaluation, course, _noise)
            _require_float32(state)
    except (ArithmeticError, TypeError, ValueError) as problem:
        raise ValueError(
            f"the sampler {named.name} has no finite result, as it is set, along the noise levels "
            f"from {tried[0]:g} to {tried[-1]:g} of this model"
        ) from problem


def _noise(like: float, sigma_from: float, sigma_to: float) -> float:
    return 1.0


def _require_float32(state: SamplerState) -> None:
    """Raises: OverflowError, ArithmeticError: the latents have no finite value in float32."""
    for x in (state.x, state.x if state.x_eval is None else state.x_eval):
        if not math.isfinite(float32(x)):
            raise ArithmeticError(f"x becomes {x}")
