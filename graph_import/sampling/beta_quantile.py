"""The quantile function of the beta distribution, in plain arithmetic."""

from __future__ import annotations

import math
from typing import Final

MAX_NEWTON_STEPS: Final = 50
RELATIVE_PRECISION: Final = 1e-15
MAX_FRACTION_TERMS: Final = 500
TINY: Final = 1e-300


def symmetric_beta_quantile(probability: float, shape: float) -> float:
    """The x in 0 to 1 below which a Beta(shape, shape) value falls with `probability`; shape < 1.

    With u = x^shape the distribution function on 0 to 1/2 is convex in u, and u = p * shape * B is
    right of the root, so Newton's method falls to the root without overshooting.
    Source: DLMF 8.17.7 (power series of the incomplete beta function).
    """
    if probability > 0.5:
        return 1.0 - symmetric_beta_quantile(1.0 - probability, shape)
    if probability <= 0.0:
        return 0.0
    beta = math.exp(2.0 * math.lgamma(shape) - math.lgamma(2.0 * shape))
    u = min(probability * shape * beta, 0.5**shape)
    for _ in range(MAX_NEWTON_STEPS):
        x = u ** (1.0 / shape)
        excess = u * _series(x, shape) / beta - probability
        step = excess * shape * beta * (1.0 - x) ** (1.0 - shape)
        u -= step
        if abs(step) <= RELATIVE_PRECISION * u:
            break
    return float(u ** (1.0 / shape))


def _series(x: float, shape: float) -> float:
    """Sum over k of (1 - shape)_k / k! * x^k / (shape + k); x up to 1/2, so it halves each term."""
    coefficient, total, k = 1.0, 0.0, 0
    while True:
        term = coefficient / (shape + k)
        total += term
        if term <= RELATIVE_PRECISION * total:
            return total
        coefficient *= (1.0 - shape + k) / (k + 1) * x
        k += 1


def beta_quantile(probability: float, alpha: float, beta: float) -> float:
    """The x in 0 to 1 below which a Beta(alpha, beta) value falls with `probability`.

    By halving: the distribution function rises. Rounded to 13 digits, so that what should be 1/2
    is.
    """
    if probability <= 0.0:
        return 0.0
    if probability >= 1.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if _regularized(middle, alpha, beta) < probability:
            low = middle
        else:
            high = middle
    return round((low + high) / 2.0, 13)


def _regularized(x: float, alpha: float, beta: float) -> float:
    """The share of Beta(alpha, beta) below x. Source: DLMF 8.17.4, 8.17.22."""
    if x <= 0.0 or x >= 1.0:  # halved until nothing is left on one side
        return 0.0 if x <= 0.0 else 1.0
    if x > (alpha + 1.0) / (alpha + beta + 2.0):  # where the fraction is slow
        return 1.0 - _regularized_below(1.0 - x, beta, alpha)
    return _regularized_below(x, alpha, beta)


def _regularized_below(x: float, alpha: float, beta: float) -> float:
    """`_regularized` by the continued fraction, evaluated by Lentz's method."""
    log_front = (
        math.lgamma(alpha + beta)
        - math.lgamma(alpha)
        - math.lgamma(beta)
        + alpha * math.log(x)
        + beta * math.log1p(-x)
    )
    ratio, numerator, denominator = 1.0, 1.0, 0.0
    for term in range(MAX_FRACTION_TERMS):
        half = term // 2
        if term == 0:
            coefficient = 1.0
        elif term % 2 == 0:
            coefficient = half * (beta - half) * x
            coefficient /= (alpha + 2 * half - 1.0) * (alpha + 2 * half)
        else:
            coefficient = -(alpha + half) * (alpha + beta + half) * x
            coefficient /= (alpha + 2 * half) * (alpha + 2 * half + 1.0)
        denominator = 1.0 / ((1.0 + coefficient * denominator) or TINY)
        numerator = (1.0 + coefficient / numerator) or TINY
        change = numerator * denominator
        ratio *= change
        if abs(change - 1.0) < RELATIVE_PRECISION:
            break
    return math.exp(log_front) * (ratio - 1.0) / alpha
