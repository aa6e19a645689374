"""The single step second order DPM-Solver++, with fresh noise after each step."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, Final

from ..base import Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
from .ancestral import renoised, split
from .log_snr import log_snr, sigma_of
from .plans import staged

# Where the picture has no share lambda is infinite, and the step has no middle: recorded from
# ComfyUI 0.8.0 (the sigma of the second evaluation of a flow's first step).
FLOW_TOP: Final = 0.9999


class Dpmpp2SAncestral(Sampler, frozen=True, kw_only=True):
    """Two evaluations per step, the second in the middle (over lambda) of its way down.

    Source: DPM-Solver++ (arXiv 2211.01095), algorithm 1.
    """

    name: str = "dpmpp_2s_ancestral"
    eta: float = 1.0
    s_noise: float = 1.0

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN

    def _stages(self, course: Course, sigma: float, following: float) -> tuple[float, ...]:
        down = split(course, sigma, following, self.eta).down
        if following == 0.0 or down == 0.0:
            return (sigma,)
        if course.sampling.is_flow and sigma >= 1.0:
            return (sigma, FLOW_TOP)
        return (sigma, sigma_of(course, (log_snr(course, sigma) + log_snr(course, down)) / 2.0))

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """At the first sigma and in the middle; a step to 0 has the first alone."""
        return staged(self._stages(course, *ends) for ends in pairwise(course.sigmas))

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """Both stages start from the step's x; the second's estimate is that of the middle."""
        sigma, following = course.sigmas[evaluation.step], course.sigmas[evaluation.step + 1]
        step = split(course, sigma, following, self.eta)
        is_trial = not evaluation.is_step_end
        target = self._stages(course, sigma, following)[1] if is_trial else step.down
        if target == 0.0:
            return SamplerState(x=estimate.denoised)
        ratio = target / sigma
        x = state.x * ratio + estimate.denoised * (1.0 - ratio)
        if is_trial:
            return SamplerState(x=state.x, x_eval=x)
        return SamplerState(x=renoised(x, step, self.s_noise, noise, sigma, following))
