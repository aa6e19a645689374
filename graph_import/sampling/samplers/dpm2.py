"""DPM-Solver-2: the slope at the middle of a step, and its ancestral form."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar

from ..base import Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
from .ancestral import Split, renoised, split
from .plans import staged


class Dpm2(Sampler, frozen=True, kw_only=True):
    """Two evaluations per step, the second at the geometric mean of the step's sigmas.

    Source: Karras et al. (arXiv 2206.00364), appendix on DPM-Solver-2 (arXiv 2206.00927).
    """

    name: str = "dpm_2"

    def _split(self, course: Course, sigma: float, following: float) -> Split:
        return Split(following, 0.0, 1.0)

    def _noised(self, x: object, step: Split, noise: Noise, s: float, following: float) -> object:
        return x

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """At the first sigma and at the middle; a step to 0 has the first alone."""
        return staged(
            (sigma,) if down == 0.0 else (sigma, math.sqrt(sigma * down))
            for sigma, down in (
                (sigma, self._split(course, sigma, following).down)
                for sigma, following in pairwise(course.sigmas)
            )
        )

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """First to the middle; then the whole step along the slope there."""
        sigma, following = course.sigmas[evaluation.step], course.sigmas[evaluation.step + 1]
        step = self._split(course, sigma, following)
        if state.x_eval is None:
            slope = (state.x - estimate.denoised) * (1.0 / sigma)
            if evaluation.is_step_end:
                return SamplerState(x=state.x + slope * (following - sigma))
            middle = math.sqrt(sigma * step.down)
            return SamplerState(x=state.x, x_eval=state.x + slope * (middle - sigma))
        slope = (state.x_eval - estimate.denoised) * (1.0 / evaluation.sigma)
        stepped = state.x + slope * (step.down - sigma)
        return SamplerState(x=self._noised(stepped, step, noise, sigma, following))


class Dpm2Ancestral(Dpm2, frozen=True, kw_only=True):
    """The same to a lower sigma than the next one, then fresh noise up to it."""

    name: str = "dpm_2_ancestral"
    eta: float = 1.0
    s_noise: float = 1.0

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN

    def _split(self, course: Course, sigma: float, following: float) -> Split:
        return split(course, sigma, following, self.eta)

    def _noised(self, x: object, step: Split, noise: Noise, s: float, following: float) -> object:
        return renoised(x, step, self.s_noise, noise, s, following)
