"""DEIS: the direction of noise extrapolated over time by a polynomial, integrated over sigma.

Source: Zhang and Chen (arXiv 2204.13902), equations 14 and 15 (tAB-DEIS), in terms of sigma.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from .lagrange import basis
from .multistep import Lms

NUM_TIMES: Final = 100


class Deis(Lms, frozen=True, kw_only=True):
    """Up to third order. The history: earlier directions.

    The polynomial's time is that of the variance preserving SDE whose beta rises from 0: sigma^2 =
    e^(t^2) - 1 (Karras et al., arXiv 2206.00364, table 1, with beta_d = 2 and beta_min = 0). The
    time, the order and the rule for the integral are recorded from ComfyUI 0.8.0: its latents
    exact integrals miss by 8e-5 at 4 steps, the trapezoidal rule over NUM_TIMES by 8e-6.
    """

    name: str = "deis"
    order: int = 3

    def _weights(self, nodes: tuple[float, ...], following: float) -> tuple[float, ...]:
        return _deis_weights(nodes, following)


@lru_cache(maxsize=1024)
def _deis_weights(nodes: tuple[float, ...], following: float) -> tuple[float, ...]:
    """For each node the integral over sigma, to `following`, of its polynomial in time."""
    if len(nodes) == 1:
        return (following - nodes[0],)
    times = [_time(sigma) for sigma in nodes]
    spacing = (_time(following) - times[0]) / (NUM_TIMES - 1)
    moments = [0.0] * len(nodes)  # of the time since the step's start
    for k in range(NUM_TIMES):
        since = k * spacing
        moment = _rate(times[0] + since) * spacing * (0.5 if k in (0, NUM_TIMES - 1) else 1.0)
        for power in range(len(nodes)):
            moments[power] += moment
            moment *= since
    return tuple(
        sum(c * moment for c, moment in zip(polynomial, moments, strict=True))
        for polynomial in basis([time - times[0] for time in times])
    )


def _time(sigma: float) -> float:
    return math.sqrt(math.log1p(sigma * sigma))


def _rate(time: float) -> float:
    """dsigma / dt at a time above 0."""
    grown = math.expm1(time * time)
    return time * (grown + 1.0) / math.sqrt(grown)
