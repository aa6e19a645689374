"""Whole runs of a sampler on the toy denoiser of the recordings, without ops or nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import torch
from nodeloom.graph_import.sampling.base import Course, Estimate, SamplerState
from nodeloom.graph_import.sampling.model_sampling import ModelSampling, scaled_linear
from nodeloom.graph_import.sampling.model_sampling_flow import FlowModelSampling
from nodeloom.graph_import.sampling.samplers import sampler
from nodeloom.runtime.sampling.noise import initial_noise, sampler_generator
from nodeloom.runtime.sampling.noise_brownian import sampler_noise
from nodeloom.runtime.values import SamplingRun

from .toy_denoiser import toy_denoised

SAMPLINGS: Final[dict[str, ModelSampling]] = {
    "eps": scaled_linear(beta_start=0.00085, beta_end=0.012, num_timesteps=1000),
    "flow": FlowModelSampling(shift=3.0, multiplier=1.0),
}
POSITIVE: Final = 0.4
NEGATIVE: Final = -0.25


@dataclass(slots=True)
class Trace:
    """What a run did, in order.

    Args:
        sigmas: of every evaluation of the model.
        x, denoised: at every step's start, the latents and the estimate; the last x is the end's.
    """

    sigmas: list[float] = field(default_factory=list)
    x: list[torch.Tensor] = field(default_factory=list)
    denoised: list[torch.Tensor] = field(default_factory=list)

    def add(self, x: torch.Tensor, sigma: float, estimate: Estimate, *, is_start: bool) -> None:
        """Another evaluation."""
        self.sigmas.append(sigma)
        if is_start:
            self.x.append(x)
            self.denoised.append(estimate.denoised)


def sampled(
    name: str,
    course: Course,
    latents: torch.Tensor,
    *,
    seed: int,
    cfg: float,
    is_noised: bool = True,
    trace: Trace | None = None,
) -> torch.Tensor:
    """What a sampler makes of `latents` (scaled); `trace` gets its evaluations."""
    chosen, trace = sampler(name), Trace() if trace is None else trace
    fresh = initial_noise(latents.shape, seed) if is_noised else torch.zeros_like(latents)
    state = chosen.begin(course.sampling.noised(latents, fresh, course.sigmas[0]), course)
    run = SamplingRun(state=state, generator=sampler_generator(seed), seed=seed)
    noise = sampler_noise(run, chosen, course)
    if chosen.is_adaptive:
        requests, estimate = chosen.run(state.x, course, noise), None
        while True:
            try:
                asked = next(requests) if estimate is None else requests.send(estimate)
            except StopIteration as end:
                state = SamplerState(x=end.value)
                break
            estimate = guided(asked.x, asked.sigma, cfg)
            trace.add(asked.x, asked.sigma, estimate, is_start=asked.is_step_start)
    for evaluation in chosen.plan(course) if not chosen.is_adaptive else ():
        x = state.x if state.x_eval is None else state.x_eval
        estimate = guided(x, evaluation.sigma, cfg)
        trace.add(x, evaluation.sigma, estimate, is_start=state.x_eval is None)
        state = chosen.update(state, estimate, evaluation, course, noise)
    last = chosen.finish(state, course)
    trace.x.append(last.x)
    finished: torch.Tensor = course.sampling.finished(last.x, chosen.last_sigma(course))
    return finished


def guided(x: torch.Tensor, sigma: float, cfg: float) -> Estimate:
    """The toy denoiser's estimate with classifier-free guidance."""
    positive, negative = (toy_denoised(x, sigma, c) for c in (POSITIVE, NEGATIVE))
    denoised = positive if cfg == 1.0 else negative + (positive - negative) * cfg
    return Estimate(denoised, negative)
