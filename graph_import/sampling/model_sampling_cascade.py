"""Stable Cascade's noise levels: a cosine, its log-SNR shifted.

Source: Nichol and Dhariwal (arXiv 2102.09672), section 3.2, for the cosine; Würstchen
(arXiv 2306.00637); Hoogeboom et al. (arXiv 2301.11093), section 3.1, for the shift.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import msgspec

from .base import Array
from .float32 import float32
from .predictions import (
    SIGMA_BEFORE_ALL,
    Prediction,
    estimate,
    input_scale,
    is_highest,
    whole_noise,
)

NUM_SIGMAS: Final = 10_000
COSINE_OFFSET: Final = 0.008
LEAST_VARIANCE: Final = 0.0001  # of picture and of noise


class CascadeModelSampling(
    msgspec.Struct, frozen=True, kw_only=True, tag="stable_cascade", forbid_unknown_fields=True
):
    """A noise-predicting denoiser over a shifted cosine."""

    shift: float = 1.0

    is_flow = False
    sigma_data = 1.0

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise levels that schedules count in, rising."""
        return _table(self.shift)

    @property
    def sigma_min(self) -> float:
        """The lowest noise level of the table."""
        return self.sigmas[0]

    @property
    def sigma_max(self) -> float:
        """The highest noise level of the table."""
        return self.sigmas[-1]

    def timestep(self, sigma: float) -> float:
        """What the network is told of `sigma`: the cosine's time, without the shift."""
        variance = 1.0 / (sigma * sigma + 1.0)
        angle = math.acos(min(math.sqrt(variance * _first_variance()), 1.0))
        return angle / (math.pi / 2.0) * (1.0 + COSINE_OFFSET) - COSINE_OFFSET

    def sigma_at(self, timestep: float) -> float:
        """The noise level of a time, 0 to 1, with the shift."""
        return _sigma(timestep, self.shift)

    def percent_to_sigma(self, percent: float) -> float:
        """The noise level when `percent` (0 to 1) of the time is over."""
        if percent <= 0.0:
            return SIGMA_BEFORE_ALL
        if percent >= 1.0:
            return 0.0
        return self.sigma_at(1.0 - percent)

    def input_scale(self, sigma: float) -> float:
        """What noisy latents are multiplied by before they enter the network."""
        return input_scale(Prediction.EPS, sigma, 1.0)

    def denoised(self, x: Array, output: Array, sigma: float) -> Array:
        """The estimate of x0, from noisy (unscaled) latents and the network's output."""
        return estimate(Prediction.EPS, x, output, sigma, 1.0)

    def noised(self, latents: Array, noise: Array, sigma: float) -> Array:
        """Where sampling starts, from `latents` (scaled) and noise."""
        if is_highest(sigma, self.sigma_max):
            return self.noised_whole(latents, noise, sigma)
        return self.noised_picture(latents, noise, sigma)

    def noised_whole(self, latents: Array, noise: Array, sigma: float) -> Array:
        """`noised` at a highest sigma."""
        return whole_noise(latents, noise, sigma)

    def noised_picture(self, latents: Array, noise: Array, sigma: float) -> Array:
        """A picture's `latents` (scaled) as they look at noise level `sigma`."""
        return latents + noise * sigma

    def finished(self, x: Array, sigma: float) -> Array:
        """What leaves the sampler at `sigma`: x."""
        return x


def _cosine_variance(timestep: float) -> float:
    angle = (timestep + COSINE_OFFSET) / (1.0 + COSINE_OFFSET) * math.pi / 2.0
    cosine = math.cos(angle)
    return cosine * cosine


def _first_variance() -> float:
    return _cosine_variance(0.0)


def _sigma(timestep: float, shift: float) -> float:
    """The log-SNR falls by 2 log(shift); the variance then keeps away from 0 and 1.

    It is rounded to float32, as ComfyUI holds it: that decides the lowest sigma.
    """
    variance = _cosine_variance(timestep) / _first_variance()
    variance = min(max(variance, LEAST_VARIANCE * LEAST_VARIANCE), 1.0)
    noise = (1.0 - variance) * shift * shift
    shifted = variance / (variance + noise)
    shifted = float32(min(max(shifted, LEAST_VARIANCE), 1.0 - LEAST_VARIANCE))
    return math.sqrt((1.0 - shifted) / shifted)


@lru_cache(maxsize=8)
def _table(shift: float) -> tuple[float, ...]:
    return tuple(_sigma(index / NUM_SIGMAS, shift) for index in range(1, NUM_SIGMAS + 1))
