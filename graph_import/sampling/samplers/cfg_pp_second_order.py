"""CFG++ over solvers of second order: the guided picture, under the negative side's noise.

Source: CFG++ (arXiv 2406.08070), appendix on higher order solvers: x moves by what guidance adds,
then a plain solver goes on with the negative side's estimates. Which estimates meet in the second
order terms: recorded from ComfyUI 0.8.0. Flows have the same form, in sigma.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar

from ..base import Course, Estimate, Evaluation, Noise, NoiseKind, Sampler, SamplerState
from .ancestral import Split, exploding_split, renoised
from .plans import staged
from .res_multistep import second_order_change


class Dpmpp2SAncestralCfgPp(Sampler, frozen=True, kw_only=True):
    """DPM-Solver++(2S) (arXiv 2211.01095, algorithm 1), fresh noise after each step.

    The history of the second stage is the first one's guided estimate.
    """

    name: str = "dpmpp_2s_ancestral_cfg_pp"
    eta: float = 1.0
    s_noise: float = 1.0

    noise: ClassVar[NoiseKind] = NoiseKind.RANDN
    uses_uncond: ClassVar[bool] = True

    def _stages(self, sigma: float, following: float) -> tuple[float, ...]:
        down, _ = exploding_split(sigma, following, self.eta)
        return (sigma,) if down == 0.0 else (sigma, math.sqrt(sigma * down))

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """At the first sigma and in the middle, over log sigma; a step to 0 has the first alone."""
        return staged(self._stages(*ends) for ends in pairwise(course.sigmas))

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """Both stages start from the step's x, moved by their own negative estimate."""
        sigma, following = course.sigmas[evaluation.step], course.sigmas[evaluation.step + 1]
        if following == 0.0:
            return SamplerState(x=estimate.denoised)
        way = Split(*exploding_split(sigma, following, self.eta), 1.0)
        first = estimate.denoised if state.x_eval is None else state.history[0]
        target = way.down if evaluation.is_step_end else self._stages(sigma, following)[1]
        ratio = target / sigma
        moved = state.x + first - estimate.negative
        x = moved * ratio + estimate.denoised * (1.0 - ratio)
        if not evaluation.is_step_end:
            return SamplerState(x=state.x, x_eval=x, history=(first,))
        return SamplerState(x=renoised(x, way, self.s_noise, noise, sigma, following))


class ResMultistepCfgPp(Sampler, frozen=True, kw_only=True):
    """RES (arXiv 2308.02157), the second order multistep form.

    The history is the last negative estimate; the scalar the sigma that the last step went down to.
    """

    name: str = "res_multistep_cfg_pp"
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
        """The first step and the one to 0 are CFG++'s own; then the solver is of second order."""
        sigmas, step, negative = course.sigmas, evaluation.step, estimate.negative
        sigma, following = sigmas[step], sigmas[step + 1]
        if following == 0.0:
            return SamplerState(x=estimate.denoised)
        way = Split(*exploding_split(sigma, following, self.eta), 1.0)
        ratio = way.down / sigma
        if state.history:
            x = (state.x + estimate.denoised - negative) * ratio + negative * (1.0 - ratio)
            last = (sigmas[step - 1], state.scalars[0])
            x = x + second_order_change(negative, state.history[0], (sigma, way.down), last)
        else:
            x = estimate.denoised + (state.x - negative) * ratio
        if self.eta > 0.0:
            x = renoised(x, way, self.s_noise, noise, sigma, following)
        return SamplerState(x=x, history=(negative,), scalars=(way.down,))
