"""Samplers that look back, as plain loops; see `plain_loops.py`.

Weights are worked out where they are needed; the formulas' own functions come from the samplers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from nodeloom.graph_import.sampling.samplers.lagrange import lagrange_weights
from plain_loops import Loop, Model, Noise, Sigmas, Tensor, split

Weights = Callable[[Sigmas, float], Sequence[float]]

EVEN = (
    (1.0,),
    (3.0 / 2.0, -1.0 / 2.0),
    (23.0 / 12.0, -16.0 / 12.0, 5.0 / 12.0),
    (55.0 / 24.0, -59.0 / 24.0, 37.0 / 24.0, -9.0 / 24.0),
)


def adams(
    model: Model, x: Tensor, sigmas: Sigmas, noise: Noise, weights: Weights, order: int
) -> Tensor:
    """Steps along slopes of up to `order` steps; `weights(nodes, following)` mixes them."""
    slopes: list[Tensor] = []
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        slopes = [(x - denoised) / sigma, *slopes][:order]
        nodes = sigmas[step + 1 - len(slopes) : step + 1][::-1]
        for weight, slope in zip(weights(nodes, following), slopes, strict=True):
            x = x + slope * weight
    return x


def exact_weights(nodes: Sigmas, following: float) -> Sequence[float]:
    return lagrange_weights(nodes, nodes[0], following)


def even_weights(nodes: Sigmas, following: float) -> Sequence[float]:
    return [weight * (following - nodes[0]) for weight in EVEN[len(nodes) - 1]]


def recorded_weights(nodes: Sigmas, following: float) -> Sequence[float]:
    h = following - nodes[0]
    if len(nodes) == 1:
        return [h]
    h1, h2, h3 = [*(a - b for a, b in pairwise(nodes)), 1.0, 1.0][:3]
    weights = [1.0 + h / h1 / 2.0, -h / h1 / 2.0, 0.0, 0.0]
    if len(nodes) > 2:
        change = (1.0 - h / (3.0 * (h + h1)) * h * (h + h1) / (h1 * (h1 + h2))) / 2.0
        for k, part in enumerate((1.0, -(1.0 + h1 / h2), h1 / h2)):
            weights[k] += change * part
    if len(nodes) > 3:
        two, three = h + h1, h + h1 + h2
        change = (1.0 - h / (3.0 * two)) / 2.0 + (1.0 - h / (2.0 * two)) * h / (6.0 * three)
        change *= h * two * three / (h1 * (h1 + h2) * (h1 + h2 + h3))
        near, far = h1 / h2, h1 * (h1 + h2) / (h2 * (h2 + h3))
        parts = (1.0, -(1.0 + near + far), near + far * (1.0 + h2 / h3), -far * near)
        for k, part in enumerate(parts):
            weights[k] += change * part
    return [weight * h for weight in weights[: len(nodes)]]


def timed_weights(nodes: Sigmas, following: float) -> Sequence[float]:
    if len(nodes) == 1:
        return [following - nodes[0]]
    times = [math.sqrt(math.log1p(sigma**2)) for sigma in (*nodes, following)]
    weights = [0.0] * len(nodes)
    for point in range(100):
        time = times[0] + point * (times[-1] - times[0]) / 99
        width = (times[-1] - times[0]) / 99 * (0.5 if point in (0, 99) else 1.0)
        rate = time * math.exp(time**2) / math.sqrt(math.expm1(time**2)) * width
        for k, node in enumerate(times[:-1]):
            part = rate
            for other in times[:-1]:
                if other != node:
                    part *= (time - other) / (node - other)
            weights[k] += part
    return weights


def dpmpp_2m(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    before = None
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        mixed = denoised
        if before is not None:
            weight = math.log(sigma / following) / math.log(sigmas[step - 1] / sigma) / 2.0
            mixed = denoised * (1.0 + weight) - before * weight
        x = x * (following / sigma) + mixed * (1.0 - following / sigma)
        before = denoised
    return x


def dpmpp_2m_cfg_pp(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    before = None
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised, negative = model(x, sigma)
        if following == 0.0:
            return denoised
        ratio = following / sigma
        mixed = negative * -ratio
        if before is not None:
            weight = math.log(1.0 / ratio) / math.log(sigmas[step - 1] / sigma) / 2.0
            mixed = mixed + (denoised - before) * (weight * (1.0 - ratio))
        x = denoised + mixed + x * ratio
        before = negative
    return x


def dpmpp_2m_sde(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise, is_heun: bool) -> Tensor:
    before = None
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        h = math.log(sigma / following)
        weight = -math.expm1(-2.0 * h)
        x = x * (following / sigma * math.exp(-h)) + denoised * weight
        if before is not None:
            slope = (denoised - before) * (h / math.log(sigmas[step - 1] / sigma))
            x = x + slope * (1.0 - weight / (2.0 * h) if is_heun else weight / 2.0)
        x = x + noise(x, sigma, following) * (following * math.sqrt(weight))
        before = denoised
    return x


def dpmpp_3m_sde(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    known: list[Tensor] = []
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        h = math.log(sigma / following)
        x = x * (following / sigma * math.exp(-h)) - denoised * math.expm1(-2.0 * h)
        phi_2 = math.expm1(-2.0 * h) / (2.0 * h) + 1.0
        if known:
            r0 = math.log(sigmas[step - 1] / sigma) / h
            first = (denoised - known[0]) / r0
            if len(known) > 1:
                r1 = math.log(sigmas[step - 2] / sigmas[step - 1]) / h
                second = (first - (known[0] - known[1]) / r1) / (r0 + r1)
                first = first + second * r0
                x = x - second * (phi_2 / (2.0 * h) - 0.5)
            x = x + first * phi_2
        x = x + noise(x, sigma, following) * (following * math.sqrt(-math.expm1(-2.0 * h)))
        known = [denoised, *known[:1]]
    return x


def res(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise, eta: float, is_pp: bool) -> Tensor:
    before, went = None, 0.0
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised, negative = model(x, sigma)
        if following == 0.0:
            return denoised
        down, up = split(sigma, following, eta)
        newest = negative if is_pp else denoised
        moved = x + denoised - negative if is_pp and before is not None else x
        if is_pp and before is None:
            x = denoised + (x - negative) * (down / sigma)
        else:
            x = moved * (down / sigma) + newest * (1.0 - down / sigma)
        if before is not None:
            h = math.log(sigma / down)
            weight = (h - 1.0 + math.exp(-h)) / math.log(sigmas[step - 1] / went)
            x = x + (newest - before) * weight
        if eta > 0.0:
            x = x + noise(x, sigma, following) * up
        before, went = newest, down
    return x


def gradient_estimation(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    before = None
    for sigma, following in pairwise(sigmas):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        slope = (x - denoised) / sigma
        mixed = slope if before is None else slope * 2.0 - before
        x = x + mixed * (following - sigma)
        before = slope
    return x


def gradient_estimation_cfg_pp(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    before = None
    for sigma, following in pairwise(sigmas):
        denoised, negative = model(x, sigma)
        if following == 0.0:
            return denoised
        slope = (x - negative) / sigma
        x = denoised + slope * following
        if before is not None:
            x = x + (slope - before) * (following - sigma)
        before = slope
    return x


def er_sde(model: Model, x: Tensor, sigmas: Sigmas, noise: Noise) -> Tensor:
    def phi(level: float) -> float:
        return level * (math.exp(level**0.3) + 10.0)

    known: list[Tensor] = []
    for step, (sigma, following) in enumerate(pairwise(sigmas)):
        denoised, _ = model(x, sigma)
        if following == 0.0:
            return denoised
        ratio, width = phi(following) / phi(sigma), following - sigma
        x = x * ratio + denoised * (1.0 - ratio)
        derivatives = [denoised]
        if known:
            levels = [following - k * width / 200 for k in range(200)]
            parts = [1.0 / phi(level) for level in levels]
            scale = -width / 200 * phi(following)
            slope = (denoised - known[0]) / (sigma - sigmas[step - 1])
            x = x + slope * (width + scale * sum(parts))
            derivatives.append(slope)
            if len(known) > 1:
                bend = (slope - known[1]) / ((sigma - sigmas[step - 2]) / 2.0)
                moved = sum((level - sigma) * p for level, p in zip(levels, parts, strict=True))
                x = x + bend * (width**2 / 2.0 + scale * moved)
        up = math.sqrt(following**2 - (sigma * ratio) ** 2)
        x = x + noise(x, sigma, following) * up
        known = derivatives
    return x


LOOKING_BACK: dict[str, Loop] = {
    "lms": partial(adams, weights=exact_weights, order=4),
    "dpmpp_2m": dpmpp_2m,
    "dpmpp_2m_cfg_pp": dpmpp_2m_cfg_pp,
    "dpmpp_2m_sde": partial(dpmpp_2m_sde, is_heun=False),
    "dpmpp_2m_sde_gpu": partial(dpmpp_2m_sde, is_heun=False),
    "dpmpp_2m_sde_heun": partial(dpmpp_2m_sde, is_heun=True),
    "dpmpp_2m_sde_heun_gpu": partial(dpmpp_2m_sde, is_heun=True),
    "dpmpp_3m_sde": dpmpp_3m_sde,
    "dpmpp_3m_sde_gpu": dpmpp_3m_sde,
    "ipndm": partial(adams, weights=even_weights, order=4),
    "ipndm_v": partial(adams, weights=recorded_weights, order=4),
    "deis": partial(adams, weights=timed_weights, order=3),
    "res_multistep": partial(res, eta=0.0, is_pp=False),
    "res_multistep_cfg_pp": partial(res, eta=0.0, is_pp=True),
    "res_multistep_ancestral": partial(res, eta=1.0, is_pp=False),
    "res_multistep_ancestral_cfg_pp": partial(res, eta=1.0, is_pp=True),
    "gradient_estimation": gradient_estimation,
    "gradient_estimation_cfg_pp": gradient_estimation_cfg_pp,
    "er_sde": er_sde,
}
