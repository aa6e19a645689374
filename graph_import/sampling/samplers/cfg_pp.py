"""CFG++: the guided estimate, under noise of the direction that the negative side tells.

Source: CFG++ (arXiv 2406.08070), algorithm 2, in terms of sigma.
"""

from __future__ import annotations

import math
from typing import ClassVar

from ..base import Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
from .ancestral import exploding_split
from .linear import scaled
from .log_snr import alpha


class EulerCfgPp(Sampler, frozen=True, kw_only=True):
    """One evaluation per step; with `eta` part of the noise is fresh."""

    name: str = "euler_cfg_pp"
    eta: float = 0.0
    s_noise: float = 1.0

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN
    uses_uncond: ClassVar[bool] = True

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
        here, there = alpha(course, sigma), alpha(course, following)
        direction = (state.x - scaled(estimate.negative, here)) * (1.0 / sigma)
        down, up = following, 0.0
        if self.eta > 0.0:
            level = sigma / here if here > 0.0 else math.inf
            down, up = (
                part * there for part in exploding_split(level, following / there, self.eta)
            )
        x = scaled(estimate.denoised, there) + direction * down
        if up > 0.0:
            x = x + noise(x, sigma, following) * (up * self.s_noise)
        return SamplerState(x=x)


class EulerPastGuidance(Sampler, frozen=True, kw_only=True):
    """Euler's method towards an estimate that lies beyond the guided one, as far as guidance went.

    It is what `SamplerEulerCFGpp` calls its alternative: recorded from ComfyUI 0.8.0.
    """

    name: str = "euler_past_guidance"

    uses_uncond: ClassVar[bool] = True

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
        beyond, ratio = estimate.denoised * 2.0 - estimate.negative, following / sigma
        return SamplerState(x=state.x * ratio + beyond * (1.0 - ratio))


class Dpmpp2MCfgPp(Sampler, frozen=True, kw_only=True):
    """DPM-Solver++ of second order over it. The history is the last negative estimate."""

    name: str = "dpmpp_2m_cfg_pp"

    uses_uncond: ClassVar[bool] = True

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """First order for the first step and the one to 0, second order else."""
        sigmas, step = course.sigmas, evaluation.step
        sigma, following = sigmas[step], sigmas[step + 1]
        if following == 0.0:
            return SamplerState(x=estimate.denoised)
        ratio = following / sigma
        mixed = estimate.negative * -ratio
        last = math.log(sigmas[step - 1] / sigma) if state.history else 0.0
        if last > 0.0:
            weight = (1.0 - ratio) * 0.5 * math.log(sigma / following) / last
            mixed = mixed + (estimate.denoised - state.history[0]) * weight
        x = estimate.denoised + mixed + state.x * ratio
        return SamplerState(x=x, history=(estimate.negative,))


class GradientEstimationCfgPp(Sampler, frozen=True, kw_only=True):
    """Gradient estimation over it (arXiv 2306.04848). The history is the last direction."""

    name: str = "gradient_estimation_cfg_pp"

    uses_uncond: ClassVar[bool] = True

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
        direction = (state.x - estimate.negative) * (1.0 / sigma)
        x = estimate.denoised + direction * following
        if state.history:
            x = x + (direction - state.history[0]) * (following - sigma)
        return SamplerState(x=x, history=(direction,))
