"""Trajectories of the samplers against ComfyUI's, through the sampling ops' own parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from nodeloom.graph_import.sampling.base import Course, Estimate, SamplerState
from nodeloom.graph_import.sampling.model_sampling import ModelSampling, scaled_linear
from nodeloom.graph_import.sampling.model_sampling_flow import FlowModelSampling
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES, sampler
from nodeloom.graph_import.sampling.schedules import step_window
from nodeloom.runtime.sampling.noise import initial_noise, sampler_generator
from nodeloom.runtime.sampling.noise_brownian import sampler_noise
from nodeloom.runtime.values import SamplingRun
from safetensors import safe_open

from .case import Case, Outcome, close, worst

TOLERANCE = 1e-4
SHAPE = (2, 4, 8, 8)
SCALES = {"eps": 0.18215, "flow": 0.3611}
SAMPLINGS: dict[str, ModelSampling] = {
    "eps": scaled_linear(beta_start=0.00085, beta_end=0.012, num_timesteps=1000),
    "flow": FlowModelSampling(shift=3.0, multiplier=1.0),
}
GROUPS = ("", "more", "i2i", "adv")


def cases(goldens: Path) -> Iterator[Case]:
    """The runs by KSampler and KSamplerAdvanced of every sampler that there is."""
    recorded = json.loads((goldens / "samplers.json").read_text("utf-8"))["runs"]
    tensors = safe_open(goldens / "samplers.safetensors", "pt")
    for key, run in recorded.items():
        kind, _, group = key.split("/")[0].partition("_")
        if group in GROUPS and key.split("/")[1] in SAMPLER_NAMES:
            yield Case(f"samplers/{key}", partial(_compare, tensors, key, kind, group, run))


def _compare(tensors: Any, key: str, kind: str, group: str, run: Any) -> Outcome:
    name, sigmas, zeros = key.split("/")[1], tuple(run["sigmas"]), torch.zeros(SHAPE)
    scale, source = SCALES[kind], run.get("same_as", key)
    calls: list[float] = []
    final = tensors.get_tensor(f"{source}/final")
    match group:
        case "i2i":
            latents = tensors.get_tensor("in/i2i_latent") * scale
            ours = _sampled(name, kind, sigmas, 7, 3.0, latents, calls=calls) / scale
            return close(ours, final, TOLERANCE / scale)
        case "adv":
            first = step_window(sigmas, start=0, end=5, keeps_noise=True)
            stage = _sampled(name, kind, first, 7, 3.0, zeros, calls=calls)
            rest = step_window(sigmas, start=5, end=10000, keeps_noise=False)
            ours = _sampled(name, kind, rest, 11, 3.0, stage, is_noised=False, calls=calls)
            return close(ours / scale, final, TOLERANCE / scale)
    cfg = 5.0 if group == "more" else float(key.rsplit("cfg", 1)[1])
    outcome = close(_sampled(name, kind, sigmas, 42, cfg, zeros, calls=calls), final, TOLERANCE)
    if "calls_sigma" not in run:
        return outcome
    theirs = torch.tensor(run["calls_sigma"], dtype=torch.float64)
    asked = torch.tensor(calls, dtype=torch.float64)
    return worst([outcome, close(asked, theirs, 1e-3 if name == "dpm_adaptive" else TOLERANCE)])


def _sampled(
    name: str,
    kind: str,
    sigmas: tuple[float, ...],
    seed: int,
    cfg: float,
    latents: torch.Tensor,
    *,
    is_noised: bool = True,
    calls: list[float],
) -> torch.Tensor:
    """The latents of a run; `calls` gets the sigma of each evaluation."""
    chosen, course = sampler(name), Course(sigmas, SAMPLINGS[kind])
    fresh = initial_noise(latents.shape, seed) if is_noised else torch.zeros_like(latents)
    state = chosen.begin(course.sampling.noised(latents, fresh, sigmas[0]), course)
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
            calls.append(asked.sigma)
            estimate = _estimate(asked.x, asked.sigma, cfg)
    for evaluation in chosen.plan(course) if not chosen.is_adaptive else ():
        x = state.x if state.x_eval is None else state.x_eval
        calls.append(evaluation.sigma)
        estimate = _estimate(x, evaluation.sigma, cfg)
        state = chosen.update(state, estimate, evaluation, course, noise)
    last = chosen.finish(state, course)
    finished: torch.Tensor = course.sampling.finished(last.x, chosen.last_sigma(course))
    return finished


def _estimate(x: torch.Tensor, sigma: float, cfg: float) -> Estimate:
    positive, negative = _toy(x, sigma, 0.4), _toy(x, sigma, -0.25)
    guided = positive if cfg == 1.0 else negative + (positive - negative) * cfg
    return Estimate(guided, negative)


def _toy(x: torch.Tensor, sigma: float, c: float) -> torch.Tensor:
    """The toy denoiser of the recordings."""
    weight = sigma * sigma / (1.0 + sigma * sigma)
    mean = x.mean(dim=(2, 3), keepdim=True)
    return x * (1.0 - weight) + weight * (0.3 * torch.tanh(0.7 * x + c) + 0.1 * mean + 0.5 * c)
