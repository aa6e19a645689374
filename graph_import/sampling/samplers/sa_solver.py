"""SA-Solver: a stochastic Adams predictor and corrector in lambda, half the log-SNR.

Source: Xue et al. (arXiv 2309.05019), SA-Predictor and SA-Corrector, with tau constant over a step.
From lambda_0 to lambda_1, with r = 1 + tau^2 and h their distance, it is
  sigma_1 / sigma_0 e^(-tau^2 h) x + alpha_1 * integral of r e^(-r (lambda_1 - lambda)) D
  + sigma_1 sqrt(1 - e^(-2 tau^2 h)) noise,
D the polynomial through the known estimates; the corrector's goes through that at lambda_1, too.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise, zip_longest
from typing import ClassVar, Final, NamedTuple

from ..base import Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
from .exponential import moment_weights, moments
from .lagrange import distinct
from .linear import summed
from .log_snr import alpha, log_snr, log_snr_sigmas
from .plans import staged
from .predictor_corrector import correction

SDE_START: Final = 0.2  # the share of the sampling from which on noise is added
SDE_END: Final = 0.8


class SaSolver(Sampler, frozen=True, kw_only=True):
    """The orders grow with the steps and fall towards the end. The history: earlier estimates.

    Args:
        eta: tau, for steps that end between the two sigmas; 0 for the others.
        sde_start_sigma, sde_end_sigma: None: where SDE_START and SDE_END of the sampling are done.
        predictor_order, corrector_order: how many estimates they know; 0: no correction.
        simple_order_2: two estimates are weighed as if e^-z were 1 in the moment of their
            difference: recorded from ComfyUI 0.8.0.
        evaluates_twice: the corrected state, too, is evaluated (PECE).
    """

    name: str = "sa_solver"
    eta: float = 1.0
    sde_start_sigma: float | None = None
    sde_end_sigma: float | None = None
    s_noise: float = 1.0
    predictor_order: int = 3
    corrector_order: int = 4
    simple_order_2: bool = False
    evaluates_twice: bool = False

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN

    def noisy_sigmas(self, course: Course) -> tuple[float, float]:
        """The highest and the lowest sigma that a step which adds noise ends at."""
        start, end = self.sde_start_sigma, self.sde_end_sigma
        if start is None:
            start = course.sampling.percent_to_sigma(SDE_START)
        if end is None:
            end = course.sampling.percent_to_sigma(SDE_END)
        return start, end

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """At each step's first sigma, and once more (PECE) where a step has led there."""
        is_twice = self.evaluates_twice and self.corrector_order > 0
        return staged(
            (sigma, sigma) if is_twice and step else (sigma,)
            for step, sigma in enumerate(log_snr_sigmas(course)[:-1])
        )

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """Correct the step that led here, then predict the next; to 0 it is the estimate."""
        sigmas, step, denoised = log_snr_sigmas(course), evaluation.step, estimate.denoised
        known = (denoised, *state.history)
        if not evaluation.is_step_end:
            corrected = summed(state.x, known, _steps(self, course)[step - 1].correction)
            return SamplerState(x=state.x, x_eval=corrected, history=state.history)
        if sigmas[step + 1] == 0.0:
            return SamplerState(x=denoised)
        way = _steps(self, course)[step]
        x = state.x if state.x_eval is None else state.x_eval
        x = summed(x * way.keep, known, way.weights)
        if way.up > 0.0:
            x = x + noise(x, sigmas[step], sigmas[step + 1]) * way.up
        num_kept = max(self.predictor_order, self.corrector_order - 1)
        return SamplerState(x=x, history=known[:num_kept])


class _Step(NamedTuple):
    """x times `keep`, plus the estimates, the newest first, times their weights, `up` of noise.

    With one evaluation per step the weights correct the last step, too. `correction` is what the
    estimates weigh in the correction of this one.
    """

    keep: float
    weights: tuple[float, ...]
    up: float
    correction: tuple[float, ...]


@lru_cache(maxsize=64)
def _steps(sampler: SaSolver, course: Course) -> tuple[_Step, ...]:
    """The steps above 0."""
    sigmas = tuple(sigma for sigma in log_snr_sigmas(course) if sigma > 0.0)
    times = tuple(log_snr(course, sigma) for sigma in sigmas)
    first, last = sampler.noisy_sigmas(course)
    steps: list[_Step] = []
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        variance = sampler.eta * sampler.eta if last <= following <= first else 0.0
        width, share = times[step + 1] - times[step], alpha(course, following)
        z = (1.0 + variance) * width
        weights = [share * weight for weight in _weights(sampler, times, step, z, newest=step)]
        changes: tuple[float, ...] = ()
        if sampler.corrector_order > 0:
            corrector = _weights(sampler, times, step, z, newest=step + 1)
            changes = correction([share * weight for weight in corrector], weights)
        keep = following / sigma * math.exp(-variance * width)
        if steps and not sampler.evaluates_twice:
            pairs = zip_longest(weights, steps[-1].correction, fillvalue=0.0)
            weights = [ours + keep * theirs for ours, theirs in pairs]
        up = following * math.sqrt(-math.expm1(-2.0 * variance * width)) * sampler.s_noise
        steps.append(_Step(keep, tuple(weights), up, changes))
    return tuple(steps)


def _weights(
    sampler: SaSolver, times: tuple[float, ...], step: int, z: float, *, newest: int
) -> tuple[float, ...]:
    """What the estimates weigh in a step; the corrector knows that at its end, too."""
    order = sampler.predictor_order if newest == step else sampler.corrector_order
    count = min(order, newest + 1, len(times) - 1 - step)
    nodes = distinct(times[newest + 1 - count : newest + 1][::-1])
    known = moments(z, len(nodes))
    if len(nodes) == 2 and sampler.simple_order_2:
        known = (known[0], z / 2.0)
    return moment_weights(nodes, times[step], times[step + 1], known)
