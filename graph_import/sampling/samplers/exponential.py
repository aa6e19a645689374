"""What exponential integrators share: their functions, and the weights of known values.

They solve dx/dt = rate * (m(t) - x), whose solution over a step of width h is x e^(-z) plus the
mean of m under the density z e^(-z (1 - v)), with z = rate * h and v from 0 to 1 along the step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from .lagrange import basis

NUM_TERMS: Final = 20  # of a series in z, which is below 1


def h_phi_1(h: float) -> float:
    """h * phi_1(h) = e^h - 1. Source: Hochbruck and Ostermann, Acta Numerica 2010, section 2."""
    return math.expm1(h)


def h_phi_2(h: float) -> float:
    """h * phi_2(h) = (e^h - 1 - h) / h."""
    return (math.expm1(h) - h) / h if h else 0.0


def moments(z: float, count: int) -> tuple[float, ...]:
    """The first `count` moments: integrals from 0 to 1 of z e^(-z (1 - v)) v^j dv, for z >= 0.

    By parts each is 1 - j / z times the one before; where that cancels, from the series in z.
    """
    if z < 1.0:
        return tuple(_moment_series(z, power) for power in range(count))
    found = [-math.expm1(-z)]
    for power in range(1, count):
        found.append(1.0 - power / z * found[-1])
    return tuple(found)


def _moment_series(z: float, power: int) -> float:
    """z times the sum over k of (-z)^k power! / (power + k + 1)!"""
    total, term = 0.0, z / (power + 1)
    for k in range(NUM_TERMS):
        total += term
        term *= -z / (power + k + 2)
    return total


def moment_weights(
    nodes: Sequence[float], start: float, end: float, known: Sequence[float]
) -> tuple[float, ...]:
    """What the value of m at each of the distinct `nodes` weighs in a step from `start` to `end`.

    Args:
        known: moments of the step, one for each node: the polynomial through the values is
            integrated by them.
    """
    width = end - start
    if width == 0.0:
        return (0.0,) * len(nodes)
    return tuple(
        sum(c * moment for c, moment in zip(polynomial, known, strict=True))
        for polynomial in basis([(node - start) / width for node in nodes])
    )
