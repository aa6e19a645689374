"""Samplers that correct a step, or choose their own sigmas, as plain loops; see `plain_loops.py`.

The predictor-correctors are written as in their papers: a corrected step starts from the state
before it, which is kept. The formulas' own functions come from the samplers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from nodeloom.graph_import.sampling.samplers.exponential import moment_weights, moments
from plain_loops import Model, Noise, Sigmas, Tensor


def sa(
    model: Model, x: Tensor, sigmas: Sigmas, noise: Noise, ends: Sigmas, is_twice: bool
) -> Tensor:
    times, count = [-math.log(sigma) for sigma in sigmas[:-1]], len(sigmas) - 2
    known: list[Tensor] = []
    start, rate, random = x, 1.0, None
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised, _ = model(x, sigma)
        if step:
            num = min(4, step + 1, count + 2 - step - 1)
            nodes, width = times[step + 1 - num : step + 1][::-1], times[step] - times[step - 1]
            weights = moment_weights(
                nodes, times[step - 1], times[step], moments(rate * width, num)
            )
            x = start
            for weight, item in zip(weights, [denoised, *known], strict=False):
                x = x + item * weight
            if random is not None:
                x = x + random
            if is_twice:
                denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        known = [denoised, *known[:2]]
        width = times[step + 1] - times[step]
        tau = 1.0 if ends[1] <= following <= ends[0] else 0.0
        rate, num = 1.0 + tau, min(3, step + 1, count - step)
        nodes = times[step + 1 - num : step + 1][::-1]
        weights = moment_weights(nodes, times[step], times[step + 1], moments(rate * width, num))
        start = x * (following / sigma * math.exp(-tau * width))
        x = start
        for weight, item in zip(weights, known, strict=False):
            x = x + item * weight
        random = None
        if tau:
            random = noise(x, sigma, following) * (following * math.sqrt(-math.expm1(-2.0 * width)))
            x = x + random
    return x


def unipc(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise, is_bh1: bool) -> Tensor:
    sigmas = (*sigmas[:-1], 0.0009765625)
    times, count = [-math.log(sigma) for sigma in sigmas], len(sigmas) - 1
    known: list[Tensor] = []
    start, before, num = x, x, 0
    for step, sigma in enumerate(sigmas[:-1]):
        denoised, _ = model(x, sigma)
        for is_corrector in (True, False) if step else (False,):
            at = step - is_corrector
            h = times[at + 1] - times[at]
            if not is_corrector:
                known, before, num = [denoised, *known[:2]], x, min(3, step + 1, count - step)
            base = -math.expm1(-h)
            ratios = [(times[at - k] - times[at]) / h for k in range(1, num)]
            changes = [
                (item - known[0]) / ratio for item, ratio in zip(known[1:], ratios, strict=False)
            ]
            if is_corrector:
                ratios, changes = [*ratios, 1.0], [*changes, denoised - known[0]]
            rhos = [(h if is_bh1 else base) / 2.0]
            if len(ratios) > 1:
                wanted = torch.tensor(moments(h, len(ratios) + 1)[1:], dtype=torch.float64)
                powers = torch.tensor(ratios, dtype=torch.float64) ** torch.arange(
                    len(ratios)
                ).unsqueeze(1)
                rhos = torch.linalg.solve(powers, wanted).tolist()
            start = before * (sigmas[at + 1] / sigmas[at]) + known[0] * base
            x = start
            for rho, change in zip(rhos, changes, strict=False):
                x = x + change * rho
    return x


def stages(x: Tensor, first: Tensor, eps: Tensor, sigmas: Sequence[float], done: int) -> Tensor:
    """A stage of DPM-Solver in t = -log sigma."""
    order, h = len(sigmas) - 1, math.log(sigmas[0] / sigmas[done + 1])
    x = x - first * (sigmas[done + 1] * math.expm1(h))
    if done == 0:
        return x
    weight = math.expm1(h) / 2.0 * order / done
    if order == 3:
        weight = (done + 1) / done * (math.expm1(h) / h - 1.0)
    return x - (eps - first) * (sigmas[done + 1] * weight)


def dpm_fast(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    count = len(sigmas) - 1
    orders = [3] * (count // 3) + [count % 3]
    if count % 3 == 0:
        orders = [3] * (count // 3 - 1) + [2, 1]
    start, width = -math.log(sigmas[0]), math.log(sigmas[0] / sigmas[-2]) / len(orders)
    for step, order in enumerate(orders):
        at, first = x, None
        ends = [math.exp(-(start + width * (step + k / order))) for k in range(order + 1)]
        for done in range(order):
            denoised, _ = model(at, ends[done])
            eps = (at - denoised) / ends[done]
            first = eps if first is None else first
            at = stages(x, first, eps, ends, done)
        x = at
    return x


def dpm_adaptive(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    now, end, width, before = -math.log(sigmas[0]), -math.log(sigmas[-2]), 0.05, x
    while now < end - 1e-5:
        goal = min(end, now + width)
        ends = [math.exp(-(now + (goal - now) * k / 3.0)) for k in range(4)]
        at, first, low = x, None, x
        for done in range(3):
            denoised, _ = model(at, ends[done])
            eps = (at - denoised) / ends[done]
            first = eps if first is None else first
            if done == 1:
                scale = ends[-1] * math.expm1(math.log(ends[0] / ends[-1]))
                low = x - first * scale - (eps - first) * (scale * 1.5)
            at = stages(x, first, eps, ends, done)
        allowed = torch.maximum(low.abs(), before.abs()).mul(0.05).clamp(min=0.0078)
        error = math.sqrt(float((((low - at) / allowed) ** 2).mean()))
        factor = 1.0 + math.atan((1.0 / (error + 1e-8)) ** (1.0 / 3.0) - 1.0)
        if factor >= 0.81:
            before, x, now = low, at, goal
        width *= factor
    return x
