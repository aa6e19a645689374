"""UniPC: a predictor and a corrector of the same order, one evaluation per step.

Source: Zhao et al. (arXiv 2302.04867), UniP and UniC (algorithms 1 and 2) for data prediction, in
terms of x / alpha and lambda = -log sigma, where the equations of all models are the same.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise, zip_longest
from typing import Final, Literal, NamedTuple

from ..base import Course, Estimate, Evaluation, Noise, Sampler, SamplerState
from .exponential import moment_weights, moments
from .lagrange import distinct
from .linear import summed
from .predictor_corrector import correction

# A last sigma of 0, where lambda has no end, counts as 0.001; what is left of the noise is that of
# the sigma whose 1 + sigma^2 is the float32 nearest to 1 + 0.001^2. Recorded from ComfyUI 0.8.0.
LAST: Final = 0.001
LAST_REACHED: Final = 0.0009765625


class UniPc(Sampler, frozen=True, kw_only=True):
    """The order grows with the steps and falls towards the end. The history: earlier estimates.

    The paper's coefficients a solve R(h) a B(h) = phi(h), so that B(h) cancels out: the weights are
    those that make polynomials exact. With a single a it takes 1 / 2 instead, and B(h) stays: h for
    `bh1`, 1 - e^-h for `bh2`.
    """

    name: str = "uni_pc"
    order: int = 3
    variant: Literal["bh1", "bh2"] = "bh1"

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """Correct the step that led here, and predict the next one.

        A course of one step takes none, x / sqrt(1 + sigma^2) stays: recorded from ComfyUI 0.8.0.
        """
        if course.num_steps == 1:
            sigma, following = _ended(course.sigmas)
            keep = math.sqrt((1.0 + following * following) / (1.0 + sigma * sigma))
            return SamplerState(x=state.x * keep)
        known = (estimate.denoised, *state.history)
        step = _steps(course.sigmas, self.order, self.variant)[evaluation.step]
        x = summed(state.x * step.keep, known, step.weights)
        return SamplerState(x=x, history=known[: self.order])

    def last_sigma(self, course: Course) -> float:
        """The noise level at which the run ends: above 0."""
        return course.sigmas[-1] or LAST


class _Step(NamedTuple):
    """x times `keep`, plus the estimates, the newest first, times their weights.

    The weights correct the last step, too.
    """

    keep: float
    weights: tuple[float, ...]


@lru_cache(maxsize=64)
def _steps(sigmas: tuple[float, ...], order: int, variant: str) -> tuple[_Step, ...]:
    ended = _ended(sigmas)
    times = tuple(-math.log(sigma) for sigma in ended)
    steps: list[_Step] = []
    last: tuple[float, ...] = ()
    for step, (sigma, following) in enumerate(pairwise(ended)):
        keep, count = following / sigma, min(order, step + 1, len(times) - 1 - step)
        weights = _weights(times, step, variant, count=count, newest=step)
        pairs = zip_longest(weights, last, fillvalue=0.0)
        steps.append(_Step(keep, tuple(ours + keep * theirs for ours, theirs in pairs)))
        corrector = _weights(times, step, variant, count=count + 1, newest=step + 1)
        last = correction(corrector, weights)
    return tuple(steps)


def _weights(
    times: tuple[float, ...], step: int, variant: str, *, count: int, newest: int
) -> tuple[float, ...]:
    """What `count` estimates weigh in a step; the corrector's `newest` is that at its end."""
    nodes = distinct(times[newest + 1 - count : newest + 1][::-1])
    h = times[step + 1] - times[step]
    known = moments(h, len(nodes))
    if len(nodes) == 2:
        known = (known[0], (h if variant == "bh1" else known[0]) / 2.0)
    return moment_weights(nodes, times[step], times[step + 1], known)


def _ended(sigmas: tuple[float, ...]) -> tuple[float, ...]:
    return (*sigmas[:-1], LAST_REACHED) if sigmas[-1] == 0.0 else sigmas
