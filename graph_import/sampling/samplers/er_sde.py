"""Extended reverse-time SDE solvers, in the level sigma / alpha.

Source: Cui et al. (arXiv 2309.06169), VE ER-SDE-Solvers. Their exact solution from level s to t is
x_t = phi(t) / phi(s) x_s + phi(t) * integral over levels from t to s of phi' / phi^2 D + noise of
variance t^2 - s^2 (phi(t) / phi(s))^2; D is expanded around s, with differences as derivatives.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar, Final, Literal

from ..base import Course, Estimate, Evaluation, Noise, NoiseKind, SamplerState
from .log_snr import LogSnrSampler, alpha, log_snr_sigmas

NUM_POINTS: Final = 200


class ErSde(LogSnrSampler, frozen=True, kw_only=True):
    """Up to three orders by Taylor expansion. The history: the last estimate and derivative."""

    name: str = "er_sde"
    solver_type: Literal["ER-SDE", "Reverse-time SDE", "ODE"] = "ER-SDE"
    max_stage: int = 3
    eta: float = 1.0
    s_noise: float = 1.0

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN

    def phi(self, level: float) -> float:
        """How the noise is scaled at a level sigma / alpha; the paper's phi.

        Its reverse-time SDE is that of `eta` 1, its ODE that of 0; the exponent between them is
        recorded from ComfyUI 0.8.0.
        """
        if level == 0.0:
            return 0.0
        match self.solver_type:
            case "ER-SDE":
                return level * (math.exp(level**0.3) + 10.0)
            case "Reverse-time SDE":
                return float(level ** (self.eta + 1.0))
            case _:
                return level

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """The order grows with the steps; the step to 0 gives the denoised latents."""
        sigmas, step, denoised = log_snr_sigmas(course), evaluation.step, estimate.denoised
        sigma, following = sigmas[step], sigmas[step + 1]
        if following == 0.0:
            return SamplerState(x=denoised)
        levels = [s / alpha(course, s) for s in sigmas[max(step - 2, 0) : step + 2]]
        here, there = levels[-2], levels[-1]
        share = alpha(course, following)
        ratio = self.phi(there) / self.phi(here)
        x = state.x * (share / alpha(course, sigma) * ratio) + denoised * (share * (1.0 - ratio))
        history = [denoised]
        if state.history and self.max_stage > 1 and here != levels[-3]:
            slope = (denoised - state.history[0]) * (1.0 / (here - levels[-3]))
            history.append(slope)
            first, second = _integrals(self, here, there)
            x = x + slope * (share * first)
            if len(state.history) > 1 and self.max_stage > 2 and here != levels[-4]:
                bend = (slope - state.history[1]) * (2.0 / (here - levels[-4]))
                x = x + bend * (share * second)
        variance = there * there - (here * ratio) ** 2
        if self.s_noise > 0.0 and self.solver_type != "ODE":
            up = math.sqrt(max(variance, 0.0)) * share * self.s_noise
            x = x + noise(x, sigma, following) * up
        return SamplerState(x=x, history=tuple(history))


@lru_cache(maxsize=1024)
def _integrals(sampler: ErSde, here: float, there: float) -> tuple[float, float]:
    """What the first and the second derivative weigh, from level `here` to `there`.

    The paper's are integrals of phi' / phi^2 times powers of the distance from `here`; by parts
    they become ones of 1 / phi. These are sums at NUM_POINTS even levels from `there` on, not
    exact: recorded from ComfyUI 0.8.0, whose latents exact integrals miss by 2e-3 at 6 steps.
    """
    width, phi = there - here, sampler.phi(there)
    spacing = -width / NUM_POINTS
    first, second = width, width * width / 2.0
    for k in range(NUM_POINTS):
        level = there + k * spacing
        mass = spacing * phi / sampler.phi(level)
        first += mass
        second += mass * (level - here)
    return first, second
