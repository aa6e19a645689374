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

    At an infinite sigma (a flow's 1, where nothing of the picture is there) x says nothing: all of
    the noise is fresh, whatever `eta` is, as recorded from ComfyUI 0.8.0.

    Source: DDIM (arXiv 2010.02502), equation 16, in terms of sigma.
    """
    if following == 0.0 or eta == 0.0:
        return following, 0.0
    if math.isinf(sigma):
        return 0.0, following
    ratio = following / sigma
    up = min(following, eta * following * math.sqrt(max(1.0 - ratio * ratio, 0.0)))
    return math.sqrt(following * following - up * up), up


def split(course: Course, sigma: float, following: float, eta: float) -> Split:
    """The step from `sigma` to `following`; for flows both shares of the mix must fit.

    A rectified flow (arXiv 2209.03003) has x = (1 - s) * picture + s * noise at level s. A step
    without noise to the level d < f leaves (1 - d) * picture + d * noise. For the marginal of the
    level f that is aimed at, the picture's share must be 1 - f: x is multiplied by the only factor
    that makes it so, keep = (1 - f) / (1 - d). Its noise then has the deviation d * keep; fresh
    noise is independent of it, so variances add up, and f^2 - (d * keep)^2 is what is missing.

    d goes evenly with eta from f to f^2 / sigma, the level that `exploding_split` steps down to at
    eta 1: recorded from ComfyUI 0.8.0.
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
