"""Stochastic DPM-Solver++ in lambda, the half log-SNR; noise from a Brownian path.

Source: DPM-Solver++ (arXiv 2211.01095), sections 4 and 5 (SDE solvers); in the coordinates x /
alpha and sigma / alpha a flow has the same equations.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar, Literal

from ..base import Array, Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
from .ancestral import exploding_split
from .linear import scaled, summed
from .log_snr import LogSnrSampler, alpha, log_snr, log_snr_sigmas, sigma_between
from .plans import staged


class DpmppSde(Sampler, frozen=True, kw_only=True):
    """Two evaluations per step, the second at the share `r` of its lambda."""

    name: str = "dpmpp_sde"
    eta: float = 1.0
    s_noise: float = 1.0
    r: float = 0.5

    noise: ClassVar[NoiseKind] = NoiseKind.BROWNIAN

    def _middle(self, course: Course, sigma: float, following: float) -> float:
        return sigma_between(course, sigma, following, self.r)

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """At the first sigma and between; a step to 0 has the first alone."""
        return staged(
            (sigma,) if following == 0.0 else (sigma, self._middle(course, sigma, following))
            for sigma, following in pairwise(log_snr_sigmas(course))
        )

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """Both stages start from the step's x, each with noise of its own."""
        sigmas = log_snr_sigmas(course)
        sigma, following = sigmas[evaluation.step], sigmas[evaluation.step + 1]
        if evaluation.is_step_end and following == 0.0:
            return SamplerState(x=estimate.denoised)
        denoised, target = estimate.denoised, following
        if state.x_eval is None:
            target = self._middle(course, sigma, following)
        else:
            share = 1.0 / (2.0 * self.r)
            denoised = summed(scaled(denoised, share), state.history, (1.0 - share,))
        here, there = alpha(course, sigma), alpha(course, target)
        down, up = exploding_split(sigma / here, target / there, self.eta)
        ratio = down * here / sigma
        x = state.x * (ratio * there / here) + denoised * (there * (1.0 - ratio))
        if up > 0.0:
            x = x + noise(x, sigma, target) * (up * there * self.s_noise)
        if state.x_eval is None:
            return SamplerState(x=state.x, x_eval=x, history=(estimate.denoised,))
        return SamplerState(x=x)


class Dpmpp2MSde(LogSnrSampler, frozen=True, kw_only=True):
    """The second order multistep solver. The history is the last denoised latents."""

    name: str = "dpmpp_2m_sde"
    eta: float = 1.0
    s_noise: float = 1.0
    solver_type: Literal["midpoint", "heun"] = "midpoint"

    noise: ClassVar[NoiseKind] = NoiseKind.BROWNIAN

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """First order for the first step; the step to 0 gives the denoised latents."""
        sigmas, step, denoised = log_snr_sigmas(course), evaluation.step, estimate.denoised
        sigma, following = sigmas[step], sigmas[step + 1]
        if following == 0.0:
            return SamplerState(x=denoised)
        width = log_snr(course, following) - log_snr(course, sigma)
        total = width * (self.eta + 1.0)
        there = alpha(course, following)
        weight = -math.expm1(-total)
        x = state.x * (following / sigma * math.exp(-width * self.eta)) + denoised * (
            there * weight
        )
        last = log_snr(course, sigma) - log_snr(course, sigmas[step - 1]) if state.history else 0.0
        if last > 0.0 and total > 0.0:
            slope = (denoised - state.history[0]) * (width / last)
            part = 0.5 * weight if self.solver_type == "midpoint" else 1.0 - weight / total
            x = x + slope * (there * part)
        if self.eta > 0.0 and width > 0.0:
            up = following * math.sqrt(-math.expm1(-2.0 * width * self.eta))
            x = x + noise(x, sigma, following) * (up * self.s_noise)
        return SamplerState(x=x, history=(denoised,))


class Dpmpp3MSde(LogSnrSampler, frozen=True, kw_only=True):
    """The third order multistep solver. The history is the last two denoised latents.

    Differences of the denoised latents over lambda stand for the derivatives.
    """

    name: str = "dpmpp_3m_sde"
    eta: float = 1.0
    s_noise: float = 1.0

    noise: ClassVar[NoiseKind] = NoiseKind.BROWNIAN

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """The order grows to three; the step to 0 gives the denoised latents."""
        sigmas, step, denoised = log_snr_sigmas(course), evaluation.step, estimate.denoised
        sigma, following = sigmas[step], sigmas[step + 1]
        if following == 0.0:
            return SamplerState(x=denoised)
        times = [log_snr(course, s) for s in sigmas[max(step - 2, 0) : step + 2]]
        width = times[-1] - times[-2]
        total = width * (self.eta + 1.0)
        there = alpha(course, following)
        x = state.x * (following / sigma * math.exp(-width * self.eta))
        x = x + denoised * (there * -math.expm1(-total))
        first, second = _derivatives((denoised, *state.history), times, width)
        if total > 0.0 and first is not None:
            phi_2 = math.expm1(-total) / total + 1.0
            x = x + first * (there * phi_2)
            if second is not None:
                x = x - second * (there * (phi_2 / total - 0.5))
        if self.eta > 0.0 and width > 0.0:
            up = following * math.sqrt(-math.expm1(-2.0 * width * self.eta))
            x = x + noise(x, sigma, following) * (up * self.s_noise)
        return SamplerState(x=x, history=(denoised, *state.history[:1]))


def _derivatives(
    known: tuple[Array, ...], times: list[float], width: float
) -> tuple[Array | None, Array | None]:
    """The first two derivatives at the newest of `known`, in units of the step's width."""
    ratios = [
        (times[-2 - k] - times[-3 - k]) / width if width else 0.0 for k in range(len(known) - 1)
    ]
    if not ratios or ratios[0] <= 0.0:
        return None, None
    newest = (known[0] - known[1]) * (1.0 / ratios[0])
    if len(ratios) < 2 or ratios[1] <= 0.0:
        return newest, None
    older = (known[1] - known[2]) * (1.0 / ratios[1])
    change = (newest - older) * (1.0 / (ratios[0] + ratios[1]))
    return newest + change * ratios[0], change
