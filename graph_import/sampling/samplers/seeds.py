"""SEEDS: stochastic exponential integrators with stages, in lambda.

Source: Gonzalez et al. (arXiv 2305.14267), SEEDS-2 and SEEDS-3, data prediction. A stage to the
share c of a step of width w in lambda is, with z = -c w (1 + eta) and D_0 of the step's start, D of
the stage before,
  (sigma_c / sigma) e^(-c w eta) x - alpha_c ((z phi_1(z) - b) D_0 + b D) + noise,
b being z phi_1(z) / (2 r) at the end of SEEDS-2, z phi_2(z) / r in stages that expand to phi_2. The
paper's SDE has eta = 1; other values, and phi_2 for SEEDS-2: recorded from ComfyUI 0.8.0. At r = 1
SEEDS-2 with phi_2 is the exponential Heun method (Hochbruck and Ostermann, Acta Numerica 2010,
section 2).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar, Literal

from ..base import Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
from .exponential import h_phi_1, h_phi_2
from .linear import summed
from .log_snr import alpha, log_snr, log_snr_sigmas, sigma_of
from .plans import staged


class Seeds(Sampler, frozen=True, kw_only=True):
    """What both have in common. The history: the first estimate, then the draws so far."""

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
        stage, shares = int(state.scalars[0]) if state.scalars else 0, self._shares()
        width = log_snr(course, following) - log_snr(course, sigma)
        target = self._sigma(course, sigma, following, shares[stage])
        first = denoised if stage == 0 else state.history[0]
        w_first, w_newest = self._weights(stage, -shares[stage] * width * (1.0 + self.eta))
        there, draws = alpha(course, target), state.history[1:]
        if self.eta > 0.0 and self.s_noise > 0.0:
            draws = (*draws, noise(state.x, evaluation.sigma, target))
        if stage == 1 and shares[0] == shares[1]:
            # The first stage ended here, too: it is the same but for the newest estimate.
            return SamplerState(x=state.x_eval - (denoised - first) * (w_newest * there))
        x = state.x * (target / sigma * math.exp(-shares[stage] * width * self.eta))
        x = summed(x, (first, denoised), (-w_first * there, -w_newest * there))
        x = summed(x, draws, (w * target * self.s_noise for w in self._noise(stage, width)))
        if evaluation.is_step_end:
            return SamplerState(x=x)
        history = (first, *draws)
        return SamplerState(x=state.x, x_eval=x, history=history, scalars=(stage + 1.0,))

    def _noise(self, stage: int, width: float) -> list[float]:
        """What the draws of the stages so far weigh: each fades as lambda goes on."""
        weights: list[float] = []
        for start, end in pairwise((0.0, *self._shares()[: stage + 1])):
            rate = (end - start) * width * self.eta
            weights = [weight * math.exp(-rate) for weight in weights]
            weights.append(math.sqrt(max(-math.expm1(-2.0 * rate), 0.0)))
        return weights


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
