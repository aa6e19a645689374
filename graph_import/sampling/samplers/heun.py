"""Heun's method on the probability flow ODE: a trial step, then the mean of both slopes."""

from __future__ import annotations

from ..base import Course, Estimate, Evaluation, Noise, Sampler, SamplerState
from .plans import first_and_last


class Heun(Sampler, frozen=True, kw_only=True):
    """Two evaluations per step, one where the step ends at 0.

    Source: Karras et al. (arXiv 2206.00364), algorithm 1.
    """

    name: str = "heun"

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """At each step's first sigma, and again at its last unless that is 0."""
        return first_and_last(course.sigmas)

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """First evaluation: the trial point and its slope; second: the step with both slopes."""
        sigma, following = course.sigmas[evaluation.step], course.sigmas[evaluation.step + 1]
        if state.x_eval is None:
            slope = (state.x - estimate.denoised) * (1.0 / sigma)
            trial = state.x + slope * (following - sigma)
            if evaluation.is_step_end:
                return SamplerState(x=trial)
            return SamplerState(x=state.x, x_eval=trial, history=(slope,))
        end_slope = (state.x_eval - estimate.denoised) * (1.0 / following)
        mean_slope = (state.history[0] + end_slope) * 0.5
        return SamplerState(x=state.x + mean_slope * (following - sigma))
