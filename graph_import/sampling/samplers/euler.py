"""Euler's method on the probability flow ODE, and its ancestral form."""

from __future__ import annotations

from typing import ClassVar

from ..base import Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
from .ancestral import renoised, split


class Euler(Sampler, frozen=True, kw_only=True):
    """One evaluation per step, along the tangent dx/dsigma = (x - denoised) / sigma.

    Source: Karras et al. (arXiv 2206.00364), algorithm 1 without its correction.
    """

    name: str = "euler"

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """Follow the tangent to the next sigma."""
        sigma, following = course.sigmas[evaluation.step], course.sigmas[evaluation.step + 1]
        slope = (state.x - estimate.denoised) * (1.0 / sigma)
        return SamplerState(x=state.x + slope * (following - sigma))


class Ddim(Euler, frozen=True, kw_only=True):
    """DDIM without noise (arXiv 2010.02502) is Euler's method in these terms."""

    name: str = "ddim"

    fresh_mask_noise: ClassVar[bool] = True


class EulerAncestral(Sampler, frozen=True, kw_only=True):
    """Euler to a lower sigma than the next one, then fresh noise up to it.

    Source: DDIM (arXiv 2010.02502), equation 16, in terms of sigma.
    """

    name: str = "euler_ancestral"
    eta: float = 1.0
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
        """Step down, then draw noise once; the step to 0 draws none."""
        sigma, following = course.sigmas[evaluation.step], course.sigmas[evaluation.step + 1]
        if following == 0.0:
            return SamplerState(x=estimate.denoised)
        step = split(course, sigma, following, self.eta)
        slope = (state.x - estimate.denoised) * (1.0 / sigma)
        stepped = state.x + slope * (step.down - sigma)
        return SamplerState(x=renoised(stepped, step, self.s_noise, noise, sigma, following))
