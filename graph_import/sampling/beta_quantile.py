"""The quantile function of the symmetric beta distribution, in plain arithmetic."""

from __future__ import annotations

import math
from typing import Final

MAX_NEWTON_STEPS: Final = 50
RELATIVE_PRECISION: Final = 1e-15


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
