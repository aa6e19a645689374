"""Half the log of the signal to noise ratio, lambda = log(alpha / sigma), as the time of samplers.

alpha is the picture's share of x: 1, or 1 - sigma for flows.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from ..base import Course, Evaluation, Sampler
from ..float32 import float32
from .plans import staged

FLOW_START: Final = 1e-4  # share of the sampling that is done where a flow starts: not at -infinity


def log_snr_sigmas(course: Course) -> tuple[float, ...]:
    """The course's sigmas, with a finite lambda at the start."""
    sigmas = course.sigmas
    if course.sampling.is_flow and sigmas and sigmas[0] >= 1.0:
        return (course.sampling.percent_to_sigma(FLOW_START), *sigmas[1:])
    return sigmas


def alpha(course: Course, sigma: float) -> float:
    """The picture's share of x at `sigma`."""
    return 1.0 - sigma if course.sampling.is_flow else 1.0


def log_snr(course: Course, sigma: float) -> float:
    """lambda of `sigma`, which is above 0."""
    return math.log(alpha(course, sigma) / sigma)


def sigma_of(course: Course, log_snr: float) -> float:
    """The sigma with this lambda."""
    exploding = math.exp(-log_snr)
    return exploding / (1.0 + exploding) if course.sampling.is_flow else exploding


@lru_cache(maxsize=1024)
def sigma_between(course: Course, sigma: float, following: float, share: float) -> float:
    """The sigma at a `share` of the way over lambda, with float32's rounding at each operation.

    A Brownian path is rough: of two sigmas 1e-6 apart it has noises 1e-3 apart. ComfyUI asks it at
    the sigma that float32 arithmetic gives.
    """
    start, end = (_log_snr_float32(course, float32(s)) for s in (sigma, following))
    between = float32(start + float32(float32(share) * float32(end - start)))
    if course.sampling.is_flow:
        return float32(1.0 / float32(1.0 + float32(math.exp(between))))
    return float32(math.exp(-between))


def _log_snr_float32(course: Course, sigma: float) -> float:
    odds = float32(sigma / float32(1.0 - sigma)) if course.sampling.is_flow else sigma
    return -float32(math.log(odds))


class LogSnrSampler(Sampler, frozen=True, kw_only=True):
    """One evaluation per step; its time is lambda."""

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """At each step's first sigma; a flow starts just below 1."""
        return staged((sigma,) for sigma in log_snr_sigmas(course)[:-1])
