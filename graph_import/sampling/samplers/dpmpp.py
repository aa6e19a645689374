"""DPM-Solver++: multistep solvers of the ODE in terms of the denoised latents."""

from __future__ import annotations

import math

from ..base import Course, Estimate, Evaluation, Noise, Sampler, SamplerState


class Dpmpp2M(Sampler, frozen=True, kw_only=True):
    """The second order multistep solver. The history is the last denoised latents.

    Time is t = -log sigma. Source: DPM-Solver++ (arXiv 2211.01095), algorithm 2 (data prediction),
    with alpha = 1.
    """

    name: str = "dpmpp_2m"

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """First order for the first step and the one to 0, second order else."""
        step, sigmas, denoised = evaluation.step, course.sigmas, estimate.denoised
        sigma, following = sigmas[step], sigmas[step + 1]
        if following == 0.0:
            return SamplerState(x=denoised)
        mixed = denoised
        last_width = math.log(sigmas[step - 1] / sigma) if state.history else 0.0
        if last_width > 0.0:  # a schedule may repeat a sigma: such a step says nothing of the slope
            weight = 0.5 * math.log(sigma / following) / last_width
            mixed = denoised * (1.0 + weight) - state.history[0] * weight
        ratio = following / sigma
        return SamplerState(x=state.x * ratio + mixed * (1.0 - ratio), history=(denoised,))
