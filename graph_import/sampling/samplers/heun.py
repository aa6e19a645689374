"""Heun's method on the probability flow ODE: a trial step, then the mean of both slopes."""

from __future__ import annotations

from itertools import pairwise

from ..base import Array, Evaluation, Noise, SamplerState


class Heun:
    """Two evaluations per step, one where the step ends at 0.

    Source: Karras et al. (arXiv 2206.00364), algorithm 1.
    """

    name = "heun"

    def plan(self, sigmas: tuple[float, ...]) -> tuple[Evaluation, ...]:
        """At each step's first sigma, and again at its last unless that is 0."""
        evaluations: list[Evaluation] = []
        for step, (sigma, following) in enumerate(pairwise(sigmas)):
            stages = (sigma,) if following == 0.0 else (sigma, following)
            evaluations += [
                Evaluation(
                    index=len(evaluations) + stage,
                    step=step,
                    sigma=stage_sigma,
                    is_step_end=stage == len(stages) - 1,
                )
                for stage, stage_sigma in enumerate(stages)
            ]
        return tuple(evaluations)

    def update(
        self,
        state: SamplerState,
        denoised: Array,
        evaluation: Evaluation,
        sigmas: tuple[float, ...],
        noise: Noise,
    ) -> SamplerState:
        """First evaluation: the trial point and its slope; second: the step with both slopes."""
        sigma, following = sigmas[evaluation.step], sigmas[evaluation.step + 1]
        if state.x_eval is None:
            slope = (state.x - denoised) * (1.0 / sigma)
            trial = state.x + slope * (following - sigma)
            if evaluation.is_step_end:
                return SamplerState(x=trial)
            return SamplerState(x=state.x, x_eval=trial, history=(slope,))
        end_slope = (state.x_eval - denoised) * (1.0 / following)
        mean_slope = (state.history[0] + end_slope) * 0.5
        return SamplerState(x=state.x + mean_slope * (following - sigma))
