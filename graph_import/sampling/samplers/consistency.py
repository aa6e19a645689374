"""Samplers that make noise anew at every step: LCM and DDPM."""

from __future__ import annotations

import math
from typing import ClassVar

from ..base import Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState


class Lcm(Sampler, frozen=True, kw_only=True):
    """The estimate, under fresh noise of the next sigma. Source: LCM (arXiv 2310.04378)."""

    name: str = "lcm"

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """The step to 0 draws no noise."""
        sigma, following = course.sigmas[evaluation.step], course.sigmas[evaluation.step + 1]
        if following == 0.0:
            return SamplerState(x=estimate.denoised)
        fresh = noise(state.x, sigma, following)
        return SamplerState(x=course.sampling.noised(estimate.denoised, fresh, following))


class Ddpm(Sampler, frozen=True, kw_only=True):
    """The posterior's mean and noise. Source: DDPM (arXiv 2006.11239), algorithm 2.

    It is written for x / sqrt(1 + sigma^2), whose share of the picture is the paper's alpha-bar.
    """

    name: str = "ddpm"

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """The step to 0 draws no noise."""
        sigma, following = course.sigmas[evaluation.step], course.sigmas[evaluation.step + 1]
        slope = (state.x - estimate.denoised) * (1.0 / sigma)
        here, there = 1.0 / (1.0 + sigma * sigma), 1.0 / (1.0 + following * following)
        kept = here / there
        mean = state.x * math.sqrt(here) - slope * ((1.0 - kept) / math.sqrt(1.0 - here))
        x = mean * (1.0 / math.sqrt(kept * there))
        if following > 0.0:
            variance = (1.0 - kept) * (1.0 - there) / (1.0 - here)
            x = x + noise(x, sigma, following) * math.sqrt(variance / there)
        return SamplerState(x=x)
