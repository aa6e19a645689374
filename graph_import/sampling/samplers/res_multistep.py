"""RES: a refined exponential multistep solver in t = -log sigma, with or without fresh noise.

Source: Zhang et al. (arXiv 2308.02157), section 4, the second order multistep form.
"""

from __future__ import annotations

import math
from typing import ClassVar

from ..base import Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
from .ancestral import Split, exploding_split, renoised


class ResMultistep(Sampler, frozen=True, kw_only=True):
    """The history is the last estimate; the scalar the sigma that the last step went down to."""

    name: str = "res_multistep"
    eta: float = 0.0
    s_noise: float = 1.0

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """First order for the first step and the one to 0, second order else."""
        sigmas, step, denoised = course.sigmas, evaluation.step, estimate.denoised
        sigma, following = sigmas[step], sigmas[step + 1]
        if following == 0.0:
            return SamplerState(x=denoised)
        way = Split(*exploding_split(sigma, following, self.eta), 1.0)
        h = math.log(sigma / way.down)
        ratio = way.down / sigma
        x = state.x * ratio + denoised * (1.0 - ratio)
        last = math.log(state.scalars[0] / sigmas[step - 1]) if state.history else 0.0
        if last != 0.0 and h > 0.0:
            phi_2 = (h - 1.0 + math.exp(-h)) / h
            x = x + (state.history[0] - denoised) * (phi_2 * h / last)
        if self.eta > 0.0:
            x = renoised(x, way, self.s_noise, noise, sigma, following)
        return SamplerState(x=x, history=(denoised,), scalars=(way.down,))
