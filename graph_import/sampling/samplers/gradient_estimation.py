"""Euler with a slope that overshoots the change since the last step.

Source: Permenter and Yuan (arXiv 2306.04848), the second order sampler: a step along
gamma * eps_n + (1 - gamma) * eps_(n-1), with gamma = 2; the slope is the paper's eps.
"""

from __future__ import annotations

from typing import Final

from ..base import Course, Estimate, Evaluation, Noise, Sampler, SamplerState
from .linear import scaled

GAMMA: Final = 2.0


class GradientEstimation(Sampler, frozen=True, kw_only=True):
    """The history is the last slope."""

    name: str = "gradient_estimation"

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """The step to 0 gives the denoised latents."""
        sigma, following = course.sigmas[evaluation.step], course.sigmas[evaluation.step + 1]
        if following == 0.0:
            return SamplerState(x=estimate.denoised)
        slope = (state.x - estimate.denoised) * (1.0 / sigma)
        mixed = slope
        if state.history:
            mixed = slope * GAMMA - scaled(state.history[0], GAMMA - 1.0)
        return SamplerState(x=state.x + mixed * (following - sigma), history=(slope,))
