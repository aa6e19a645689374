"""SEEDS: stochastic exponential integrators with stages, in lambda.

Source: Gonzalez et al. (arXiv 2305.14267), SEEDS-2 and SEEDS-3. At r = 1 SEEDS-2 is an exponential
Heun method.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar, Literal

from ..base import Array, Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
from .exponential import h_phi_1, h_phi_2
from .log_snr import alpha, log_snr, log_snr_sigmas, sigma_of
from .plans import staged


class Seeds(Sampler, frozen=True, kw_only=True):
    """What both have in common. The history: the first estimate, then the noise so far."""

    name: str
    eta: float = 1.0
    s_noise: float = 1.0

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN

    def _shares(self) -> tuple[float, ...]:
        """Where the stages end, as shares of the step's lambda; the last is 1."""
        raise TypeError(f"{self.name} does not say what its stages are")

    def _weights(self, stage: int, h: float) -> tuple[float, float]:
        """What the first and the newest estimate weigh; h is minus lambda's way * (1 + eta)."""
        raise TypeError(f"{self.name} does not say what its stages are")

    def _sigma(self, course: Course, sigma: float, following: float, share: float) -> float:
        if share == 1.0:
            return following
        start, end = log_snr(course, sigma), log_snr(course, following)
        return sigma_of(course, start + share * (end - start))

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """At each step's first sigma and where its stages but the last end."""
        shares = (0.0, *self._shares()[:-1])
        return staged(
            (sigma,)
            if following == 0.0
            else tuple(
                self._sigma(course, sigma, following, share) if share else sigma for share in shares
            )
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
        """Each stage starts from the step's x; its noise goes on from the stage before."""
        sigmas, denoised = log_snr_sigmas(course), estimate.denoised
        sigma, following = sigmas[evaluation.step], sigmas[evaluation.step + 1]
        if following == 0.0:
            return SamplerState(x=denoised)
        stage = int(state.scalars[0]) if state.scalars else 0
        shares = self._shares()
        width = log_snr(course, following) - log_snr(course, sigma)
        share = shares[stage]
        target = self._sigma(course, sigma, following, share)
        first = denoised if stage == 0 else state.history[0]
        weights = self._weights(stage, -share * width * (1.0 + self.eta))
        there = alpha(course, target)
        x = state.x * (target / sigma * math.exp(-share * width * self.eta))
        x = x - (first * weights[0] + denoised * weights[1]) * there
        grown = self._noise(state, stage, width, noise, (evaluation.sigma, target))
        if grown is not None:
            x = x + grown * (target * self.s_noise)
        if evaluation.is_step_end:
            return SamplerState(x=x)
        history = (first,) if grown is None else (first, grown)
        return SamplerState(x=state.x, x_eval=x, history=history, scalars=(stage + 1.0,))

    def _noise(
        self,
        state: SamplerState,
        stage: int,
        width: float,
        noise: Noise,
        sigmas: tuple[float, float],
    ) -> Array | None:
        if self.eta <= 0.0 or self.s_noise <= 0.0:
            return None
        shares = (0.0, *self._shares())
        rate = (shares[stage + 1] - shares[stage]) * width * self.eta
        fresh = noise(state.x, *sigmas) * math.sqrt(max(-math.expm1(-2.0 * rate), 0.0))
        return fresh if stage == 0 else state.history[1] * math.exp(-rate) + fresh


class Seeds2(Seeds, frozen=True, kw_only=True):
    """Two stages, the first to the share `r` of the step."""

    name: str = "seeds_2"
    r: float = 0.5
    solver_type: Literal["phi_1", "phi_2"] = "phi_1"

    def _shares(self) -> tuple[float, ...]:
        return (self.r, 1.0)

    def _weights(self, stage: int, h: float) -> tuple[float, float]:
        if stage == 0:
            return 0.0, h_phi_1(h)
        is_first = self.solver_type == "phi_1"
        newest = (h_phi_1(h) / 2.0 if is_first else h_phi_2(h)) / self.r
        return h_phi_1(h) - newest, newest


class ExpHeun2X0(Seeds2, frozen=True, kw_only=True):
    """Both slopes at the ends of the step, without noise."""

    name: str = "exp_heun_2_x0"
    eta: float = 0.0
    r: float = 1.0
    solver_type: Literal["phi_1", "phi_2"] = "phi_2"

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN


class Seeds3(Seeds, frozen=True, kw_only=True):
    """Three stages, to a third, two thirds and all of the step."""

    name: str = "seeds_3"

    def _shares(self) -> tuple[float, ...]:
        return (1.0 / 3.0, 2.0 / 3.0, 1.0)

    def _weights(self, stage: int, h: float) -> tuple[float, float]:
        if stage == 0:
            return 0.0, h_phi_1(h)
        newest = h_phi_2(h) * (2.0 if stage == 1 else 1.5)
        return h_phi_1(h) - newest, newest
