"""Denoisers of any noise level between two: EDM's, v prediction over an angle, Cosmos.

Source: Karras et al. (arXiv 2206.00364), table 1; SVD (arXiv 2311.15127), appendix D.
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

NUM_SIGMAS: Final = 1000  # of the table that schedules count in


class _BetweenTwoSigmas(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the continuous ones share: the table is evenly spaced in log-sigma."""

    sigma_min: float
    sigma_max: float

    is_flow = False

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise levels that schedules count in, rising."""
        return _log_spaced(self.sigma_min, self.sigma_max)

    def percent_to_sigma(self, percent: float) -> float:
        """The noise level when `percent` (0 to 1) of the way down in log-sigma is done."""
        if percent <= 0.0:
            return SIGMA_BEFORE_ALL
        if percent >= 1.0:
            return 0.0
        low, high = math.log(self.sigma_min), math.log(self.sigma_max)
        return math.exp(low + (high - low) * (1.0 - percent))

    def finished(self, x: Array, sigma: float) -> Array:
        """What leaves the sampler at `sigma`: x."""
        return x

    def noised_picture(self, latents: Array, noise: Array, sigma: float) -> Array:
        """A picture's `latents` (scaled) as they look at noise level `sigma`."""
        return latents + noise * sigma


class EdmModelSampling(_BetweenTwoSigmas, frozen=True, kw_only=True, tag="edm"):
    """Networks that are told log(sigma) / 4."""

    prediction: Prediction = Prediction.V
    sigma_data: float = 1.0

    def timestep(self, sigma: float) -> float:
        """What the network is told of `sigma`."""
        return 0.25 * math.log(sigma)

    def sigma_at(self, timestep: float) -> float:
        """The noise level that the network is told as `timestep`."""
        return math.exp(timestep / 0.25)

    def input_scale(self, sigma: float) -> float:
        """What noisy latents are multiplied by before they enter the network."""
        return input_scale(self.prediction, sigma, self.sigma_data)

    def denoised(self, x: Array, output: Array, sigma: float) -> Array:
        """The estimate of x0, from noisy (unscaled) latents and the network's output."""
        return estimate(self.prediction, x, output, sigma, self.sigma_data)

    def noised(self, latents: Array, noise: Array, sigma: float) -> Array:
        """Where sampling starts, from `latents` (scaled) and noise."""
        if is_highest(sigma, self.sigma_max):
            return self.noised_whole(latents, noise, sigma)
        return self.noised_picture(latents, noise, sigma)

    def noised_whole(self, latents: Array, noise: Array, sigma: float) -> Array:
        """`noised` at a highest sigma."""
        return whole_noise(latents, noise, sigma)


class AngleModelSampling(_BetweenTwoSigmas, frozen=True, kw_only=True, tag="v_continuous"):
    """Networks that predict v and are told the angle between picture and noise, 0 to 1.

    The angle is rounded to float32, which is what the network gets: near 1 it tells in digits.
    """

    sigma_data = 1.0

    def timestep(self, sigma: float) -> float:
        """What the network is told of `sigma`."""
        return float32(float32(math.atan(sigma)) / (math.pi / 2.0))

    def sigma_at(self, timestep: float) -> float:
        """The noise level that the network is told as `timestep`."""
        return math.tan(float32(timestep * (math.pi / 2.0)))

    def input_scale(self, sigma: float) -> float:
        """What noisy latents are multiplied by before they enter the network."""
        return input_scale(Prediction.V, sigma, 1.0)

    def denoised(self, x: Array, output: Array, sigma: float) -> Array:
        """The estimate of x0, from noisy (unscaled) latents and the network's output."""
        return estimate(Prediction.V, x, output, sigma, 1.0)

    def noised(self, latents: Array, noise: Array, sigma: float) -> Array:
        """Where sampling starts, from `latents` (scaled) and noise."""
        if is_highest(sigma, self.sigma_max):
            return self.noised_whole(latents, noise, sigma)
        return self.noised_picture(latents, noise, sigma)

    def noised_whole(self, latents: Array, noise: Array, sigma: float) -> Array:
        """`noised` at a highest sigma."""
        return whole_noise(latents, noise, sigma)


class CosmosModelSampling(_BetweenTwoSigmas, frozen=True, kw_only=True, tag="cosmos_rflow"):
    """Rectified flow networks whose latents are kept as x0 + sigma * noise.

    The network sees t = sigma / (1 + sigma) and x / (1 + sigma), the flow's own latents.
    """

    sigma_data = 1.0

    def timestep(self, sigma: float) -> float:
        """What the network is told of `sigma`."""
        return sigma / (sigma + 1.0)

    def sigma_at(self, timestep: float) -> float:
        """The noise level that the network is told as `timestep`, at most the highest."""
        if timestep >= self.timestep(self.sigma_max):
            return self.sigma_max
        return timestep / (1.0 - timestep)

    def input_scale(self, sigma: float) -> float:
        """What noisy latents are multiplied by before they enter the network."""
        return 1.0 / (sigma + 1.0)

    def denoised(self, x: Array, output: Array, sigma: float) -> Array:
        """The estimate of x0, from noisy (unscaled) latents and the network's output."""
        return x * (1.0 / (sigma + 1.0)) - output * (sigma / (sigma + 1.0))

    def noised(self, latents: Array, noise: Array, sigma: float) -> Array:
        """Where sampling starts, from `latents` (scaled) and noise."""
        return latents + noise * sigma

    def noised_whole(self, latents: Array, noise: Array, sigma: float) -> Array:
        """`noised` at a highest sigma."""
        return latents + noise * sigma


@lru_cache(maxsize=16)
def _log_spaced(sigma_min: float, sigma_max: float) -> tuple[float, ...]:
    low, high = math.log(sigma_min), math.log(sigma_max)
    last = NUM_SIGMAS - 1
    return tuple(math.exp(low + (high - low) * index / last) for index in range(NUM_SIGMAS))
