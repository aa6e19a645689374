"""Samplers that look at one step alone, as the plain loops of `bench_samplers.py`.

A loop has the arithmetic and no more: no plan, no state that could be carried, no options, models
that are no flows. `model(x, sigma)` gives the guided and the negative estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch

Tensor = torch.Tensor
Model = Callable[[Tensor, float], tuple[Tensor, Tensor]]
Noise = Callable[[Tensor, float, float], Tensor]
Sigmas = tuple[float, ...]
Loop = Callable[[Model, Tensor, Sigmas, Noise], Tensor]


def split(sigma: float, following: float, eta: float = 1.0) -> tuple[float, float]:
    """Down to a lower sigma, and up again by fresh noise."""
    up = min(following, eta * following * math.sqrt(1.0 - (following / sigma) ** 2))
    return math.sqrt(following**2 - up**2), up


def euler(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        denoised, _ = model(x, sigma)
        x = x + (x - denoised) / sigma * (following - sigma)
    return x


def euler_ancestral(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        down, up = split(sigma, following)
        x = x + (x - denoised) / sigma * (down - sigma)
        x = x + noise(x, sigma, following) * up
    return x


def euler_cfg_pp(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        denoised, negative = model(x, sigma)
        if following == 0.0:
            return denoised
        x = denoised + (x - negative) / sigma * following
    return x


def euler_ancestral_cfg_pp(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        denoised, negative = model(x, sigma)
        if following == 0.0:
            return denoised
        down, up = split(sigma, following)
        x = denoised + (x - negative) / sigma * down
        x = x + noise(x, sigma, following) * up
    return x


def heun(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        denoised, _ = model(x, sigma)
        slope = (x - denoised) / sigma
        trial = x + slope * (following - sigma)
        if following == 0.0:
            return trial
        denoised, _ = model(trial, following)
        slope = (slope + (trial - denoised) / following) / 2.0
        x = x + slope * (following - sigma)
    return x


def heunpp2(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for step in range(len(sigmas) - 1):
        ahead = [sigma for sigma in sigmas[step : step + 3] if sigma > 0.0]
        at, slopes = x, []
        for k, sigma in enumerate(ahead):
            denoised, _ = model(at, sigma)
            slopes.append((at - denoised) / sigma)
            if k + 1 < len(ahead):
                at = at + slopes[-1] * (ahead[k + 1] - sigma)
        later = [sigma / (len(ahead) * sigmas[0]) for sigma in ahead[1:]]
        mean = slopes[0] * (1.0 - sum(later))
        for weight, slope in zip(later, slopes[1:], strict=True):
            mean = mean + slope * weight
        x = x + mean * (sigmas[step + 1] - sigmas[step])
    return x


def dpm_2(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        middle = math.sqrt(sigma * following)
        at = x + (x - denoised) / sigma * (middle - sigma)
        denoised, _ = model(at, middle)
        x = x + (at - denoised) / middle * (following - sigma)
    return x


def dpm_2_ancestral(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        down, up = split(sigma, following)
        middle = math.sqrt(sigma * down)
        at = x + (x - denoised) / sigma * (middle - sigma)
        denoised, _ = model(at, middle)
        x = x + (at - denoised) / middle * (down - sigma)
        x = x + noise(x, sigma, following) * up
    return x


def dpmpp_2s_ancestral(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        down, up = split(sigma, following)
        middle = math.sqrt(sigma * down)
        at = x * (middle / sigma) + denoised * (1.0 - middle / sigma)
        denoised, _ = model(at, middle)
        x = x * (down / sigma) + denoised * (1.0 - down / sigma)
        x = x + noise(x, sigma, following) * up
    return x


def dpmpp_2s_ancestral_cfg_pp(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        first, negative = model(x, sigma)
        if following == 0.0:
            return first
        down, up = split(sigma, following)
        middle = math.sqrt(sigma * down)
        at = (x + first - negative) * (middle / sigma) + first * (1.0 - middle / sigma)
        denoised, negative = model(at, middle)
        x = (x + first - negative) * (down / sigma) + denoised * (1.0 - down / sigma)
        x = x + noise(x, sigma, following) * up
    return x


def dpmpp_sde(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        middle = math.sqrt(sigma * following)
        down, up = split(sigma, middle)
        at = x * (down / sigma) + denoised * (1.0 - down / sigma)
        at = at + noise(x, sigma, middle) * up
        denoised, _ = model(at, middle)
        down, up = split(sigma, following)
        x = x * (down / sigma) + denoised * (1.0 - down / sigma)
        x = x + noise(x, sigma, following) * up
    return x


def ddpm(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        denoised, _ = model(x, sigma)
        here, there = 1.0 / (1.0 + sigma**2), 1.0 / (1.0 + following**2)
        kept = here / there
        mean = x * math.sqrt(here) - (x - denoised) / sigma * ((1.0 - kept) / math.sqrt(1.0 - here))
        x = mean * (1.0 / math.sqrt(kept * there))
        if following > 0.0:
            variance = (1.0 - kept) * (1.0 - there) / (1.0 - here)
            x = x + noise(x, sigma, following) * math.sqrt(variance / there)
    return x


def lcm(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        x, _ = model(x, sigma)
        if following > 0.0:
            x = x + noise(x, sigma, following) * following
    return x


def seeds_2(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        first, _ = model(x, sigma)
        if following == 0.0:
            return first
        width = math.log(sigma / following)
        middle = math.sqrt(sigma * following)
        fresh = noise(x, sigma, middle) * math.sqrt(-math.expm1(-width))
        at = x * (middle / sigma * math.exp(-width / 2.0))
        at = at - first * math.expm1(-width) + fresh * middle
        denoised, _ = model(at, middle)
        fresh = fresh * math.exp(-width / 2.0)
        fresh = fresh + noise(x, middle, following) * math.sqrt(-math.expm1(-width))
        x = x * (following / sigma * math.exp(-width))
        x = x - denoised * math.expm1(-2.0 * width) + fresh * following
    return x


def seeds_3(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        first, _ = model(x, sigma)
        if following == 0.0:
            return first
        width = math.log(sigma / following)
        ends = [sigma * math.exp(-width * k / 3.0) for k in range(3)] + [following]
        at, denoised, fresh = x, first, None
        for stage, end in enumerate(ends[1:]):
            if stage:
                denoised, _ = model(at, ends[stage])
            z = -2.0 * width * (stage + 1) / 3.0
            newest = (0.0, 2.0, 1.5)[stage] * (math.expm1(z) - z) / z
            part = noise(x, ends[stage], end) * math.sqrt(-math.expm1(-2.0 * width / 3.0))
            fresh = part if fresh is None else fresh * math.exp(-width / 3.0) + part
            at = x * (end / sigma * math.exp(z / 2.0))
            at = at - first * (math.expm1(z) - newest) - denoised * newest + fresh * end
        x = at
    return x


def exp_heun_2_x0(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        first, _ = model(x, sigma)
        if following == 0.0:
            return first
        z = math.log(following / sigma)
        at = x * (following / sigma) - first * math.expm1(z)
        denoised, _ = model(at, following)
        newest = (math.expm1(z) - z) / z
        x = x * (following / sigma)
        x = x - first * (math.expm1(z) - newest) - denoised * newest
    return x


def exp_heun_2_x0_sde(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    for sigma, following in pairwise(sigmas):
        first, _ = model(x, sigma)
        if following == 0.0:
            return first
        width = math.log(sigma / following)
        z = -2.0 * width
        fresh = noise(x, sigma, following) * (following * math.sqrt(-math.expm1(z)))
        moved = x * (following / sigma * math.exp(-width))
        denoised, _ = model(moved - first * math.expm1(z) + fresh, following)
        noise(x, following, following)
        newest = (math.expm1(z) - z) / z
        x = moved - first * (math.expm1(z) - newest) - denoised * newest + fresh
    return x


ONE_STEP: dict[str, Loop] = {
    "euler": euler,
    "euler_cfg_pp": euler_cfg_pp,
    "euler_ancestral": euler_ancestral,
    "euler_ancestral_cfg_pp": euler_ancestral_cfg_pp,
    "heun": heun,
    "heunpp2": heunpp2,
    "exp_heun_2_x0": exp_heun_2_x0,
    "exp_heun_2_x0_sde": exp_heun_2_x0_sde,
    "dpm_2": dpm_2,
    "dpm_2_ancestral": dpm_2_ancestral,
    "dpmpp_2s_ancestral": dpmpp_2s_ancestral,
    "dpmpp_2s_ancestral_cfg_pp": dpmpp_2s_ancestral_cfg_pp,
    "dpmpp_sde": dpmpp_sde,
    "dpmpp_sde_gpu": dpmpp_sde,
    "ddpm": ddpm,
    "lcm": lcm,
    "seeds_2": seeds_2,
    "seeds_3": seeds_3,
    "ddim": euler,
}
