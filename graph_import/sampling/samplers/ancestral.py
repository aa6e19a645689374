"""What samplers share that remove more noise than they should and add fresh noise."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..base import Array, Course, Noise


class Split(NamedTuple):
    """A step's way down and back up: to sigma `down`, then times `keep`, plus `up` of noise."""

    down: float
    up: float
    keep: float


def exploding_split(sigma: float, following: float, eta: float) -> tuple[float, float]:
    """(down, up) with down^2 + up^2 = following^2, up eta times what the DDPM posterior has.

    Source: DDIM (arXiv 2010.02502), equation 16, in terms of sigma.
    """
    if following == 0.0 or eta == 0.0:
        return following, 0.0
    ratio = following / sigma
    up = min(following, eta * following * math.sqrt(max(1.0 - ratio * ratio, 0.0)))
    return math.sqrt(following * following - up * up), up


def split(course: Course, sigma: float, following: float, eta: float) -> Split:
    """The step from `sigma` to `following`; for flows both shares of the mix must fit.

    For a flow the way down is eta times the step's ratio further; the noise then brings the mix of
    `down` to that of `following`: x is scaled so that the picture's share fits.
    """
    if not course.sampling.is_flow:
        return Split(*exploding_split(sigma, following, eta), 1.0)
    down = following * (1.0 + (following / sigma - 1.0) * eta)
    keep = (1.0 - following) / (1.0 - down) if down < 1.0 else 1.0
    return Split(down, math.sqrt(max(following**2 - (down * keep) ** 2, 0.0)), keep)


def renoised(
    x: Array, step: Split, s_noise: float, noise: Noise, sigma: float, following: float
) -> Array:
    """x at `down` brought up to `following`; the last step draws no noise."""
    if following == 0.0:
        return x
    kept = x if step.keep == 1.0 else x * step.keep
    return kept + noise(x, sigma, following) * (step.up * s_noise)
