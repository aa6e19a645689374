"""RES: a refined exponential multistep solver in t = -log sigma, with or without fresh noise.

Source: Zhang et al. (arXiv 2308.02157), the second order multistep form. With D of now and D_0 of
the step before, which was w wide, a step of width h gives
e^-h x + (1 - e^-h) D + (e^-h - 1 + h) (D - D_0) / w, where e^-h - 1 + h = h^2 phi_2(-h).
"""

from __future__ import annotations

import math
from typing import ClassVar

from ..base import Array, Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
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
        ratio = way.down / sigma
        x = state.x * ratio + denoised * (1.0 - ratio)
        if state.history:
            last = (sigmas[step - 1], state.scalars[0])
            x = x + second_order_change(denoised, state.history[0], (sigma, way.down), last)
        if self.eta > 0.0:
            x = renoised(x, way, self.s_noise, noise, sigma, following)
        return SamplerState(x=x, history=(denoised,), scalars=(way.down,))


def second_order_change(
    newest: Array, before: Array, step: tuple[float, float], last: tuple[float, float]
) -> Array:
    """What the change of the estimates, from `before` to `newest`, adds to a first order step.

    Args:
        step: where the step starts and ends.
        last: where the last one, which had the estimate `before`, started and ended.
    """
    h, width = math.log(step[0] / step[1]), math.log(last[0] / last[1])
    if width == 0.0 or h <= 0.0:
        return newest * 0.0
    return (newest - before) * ((h - 1.0 + math.exp(-h)) / width)
