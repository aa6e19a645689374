"""Euler's method on the probability flow ODE, and its ancestral form."""

from __future__ import annotations

import math

from ..base import Array, Evaluation, Noise, SamplerState
from .plans import one_per_step


class Euler:
    """One evaluation per step, along the tangent dx/dsigma = (x - denoised) / sigma.

    Source: Karras et al. (arXiv 2206.00364), algorithm 1 without its correction.
    """

    name = "euler"

    def plan(self, sigmas: tuple[float, ...]) -> tuple[Evaluation, ...]:
        """One evaluation per step, at the step's first sigma."""
        return one_per_step(sigmas)

    def update(
        self,
        state: SamplerState,
        denoised: Array,
        evaluation: Evaluation,
        sigmas: tuple[float, ...],
        noise: Noise,
    ) -> SamplerState:
        """Follow the tangent to the next sigma."""
        sigma, following = sigmas[evaluation.step], sigmas[evaluation.step + 1]
        slope = (state.x - denoised) * (1.0 / sigma)
        return SamplerState(x=state.x + slope * (following - sigma))


class EulerAncestral:
    """Euler to a lower sigma than the next one, then fresh noise up to it (eta = 1).

    The two parts keep the variance: sigma_down^2 + sigma_up^2 = sigma_next^2, with the split that
    the DDPM posterior has. Source: DDIM (arXiv 2010.02502), equation 16, in terms of sigma.
    """

    name = "euler_ancestral"

    def plan(self, sigmas: tuple[float, ...]) -> tuple[Evaluation, ...]:
        """One evaluation per step, at the step's first sigma."""
        return one_per_step(sigmas)

    def update(
        self,
        state: SamplerState,
        denoised: Array,
        evaluation: Evaluation,
        sigmas: tuple[float, ...],
        noise: Noise,
    ) -> SamplerState:
        """Step down, then draw noise once; the step to 0 draws none."""
        sigma, following = sigmas[evaluation.step], sigmas[evaluation.step + 1]
        if following == 0.0:
            return SamplerState(x=denoised)
        ratio = following / sigma
        up = min(following, following * math.sqrt(max(1.0 - ratio * ratio, 0.0)))
        down = math.sqrt(following * following - up * up)
        slope = (state.x - denoised) * (1.0 / sigma)
        stepped = state.x + slope * (down - sigma)
        return SamplerState(x=stepped + noise(state.x) * up)
