"""Heun++: Heun's method that looks up to two steps ahead, less as the noise falls."""

from __future__ import annotations

from typing import Final

from ..base import Course, Estimate, Evaluation, Noise, Sampler, SamplerState
from .plans import staged

MAX_STAGES: Final = 3


class HeunPp2(Sampler, frozen=True, kw_only=True):
    """Up to three slopes per step, at its first sigma and at the next ones above 0.

    With k slopes, that at a later sigma weighs sigma / (k * the schedule's first sigma), and the
    first one has the rest. No paper describes them: recorded from ComfyUI 0.8.0, whose latents they
    fit by least squares in every step (test_heunpp.py).
    """

    name: str = "heunpp2"

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """At the first sigma of the step, then at the following ones above 0."""
        sigmas = course.sigmas
        return staged(_stages(sigmas, step) for step in range(course.num_steps))

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """The slope here; then on with it to the next sigma, or the whole step at the end."""
        sigmas, step = course.sigmas, evaluation.step
        x = state.x if state.x_eval is None else state.x_eval
        slope = (x - estimate.denoised) * (1.0 / evaluation.sigma)
        slopes = (*state.history, slope)
        if not evaluation.is_step_end:
            at = step + len(slopes)
            trial = x + slope * (sigmas[at] - sigmas[at - 1])
            return SamplerState(x=state.x, x_eval=trial, history=slopes)
        later = [sigmas[step + k] / (len(slopes) * sigmas[0]) for k in range(1, len(slopes))]
        mean = slopes[0] * (1.0 - sum(later))
        for weight, item in zip(later, slopes[1:], strict=True):
            mean = mean + item * weight
        return SamplerState(x=state.x + mean * (sigmas[step + 1] - sigmas[step]))


def _stages(sigmas: tuple[float, ...], step: int) -> tuple[float, ...]:
    first, *later = sigmas[step : step + MAX_STAGES]
    return (first, *(sigma for sigma in later if sigma > 0.0))
