"""Rectified flow denoisers: x = (1 - sigma) * x0 + sigma * noise, the network tells noise - x0.

Source: Esser et al. (arXiv 2403.03206), sections 2 and 5.3.2 for the shift of the timesteps;
Flux's and the exponential form of the shift: black-forest-labs/flux, paper of FLUX.1 Kontext
(arXiv 2506.15742), section 3.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import msgspec

from .base import Array

NUM_SHIFTED: Final = 1000
NUM_EXPONENTIAL: Final = 10_000


class _Flow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What rectified flows share."""

    is_flow = True
    sigma_data = 1.0
    sigma_max = 1.0

    def input_scale(self, sigma: float) -> float:
        """What noisy latents are multiplied by before they enter the network: 1."""
        return 1.0

    def denoised(self, x: Array, output: Array, sigma: float) -> Array:
        """The estimate of x0, from noisy latents and the network's output."""
        return x - output * sigma

    def noised(self, latents: Array, noise: Array, sigma: float) -> Array:
        """Where sampling starts, from `latents` (scaled) and noise."""
        return self.noised_picture(latents, noise, sigma)

    def noised_whole(self, latents: Array, noise: Array, sigma: float) -> Array:
        """`noised` at a highest sigma."""
        return self.noised_picture(latents, noise, sigma)

    def noised_picture(self, latents: Array, noise: Array, sigma: float) -> Array:
        """A picture's `latents` (scaled) as they look at noise level `sigma`."""
        return noise * sigma + latents * (1.0 - sigma)

    def finished(self, x: Array, sigma: float) -> Array:
        """What leaves the sampler at `sigma`: x in the scale of pictures, noise and all.

        Nothing is left of a picture at a sigma of 1: that is left as it is.
        """
        return x if sigma in (0.0, 1.0) else x * (1.0 / (1.0 - sigma))


class FlowModelSampling(_Flow, frozen=True, kw_only=True, tag="flow"):
    """A flow with the timesteps of SD3: t -> shift * t / (1 + (shift - 1) * t).

    Args:
        multiplier: what sigma is multiplied by before the network is told it.
    """

    shift: float = 1.0
    multiplier: float = 1000.0

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise levels that schedules count in, rising."""
        return _shifted_table(self.shift)

    @property
    def sigma_min(self) -> float:
        """The lowest noise level of the table."""
        return self.sigmas[0]

    def timestep(self, sigma: float) -> float:
        """What the network is told of `sigma`, which is shifted already."""
        return sigma * self.multiplier

    def sigma_at(self, timestep: float) -> float:
        """The noise level of a timestep before the shift."""
        return _shifted(timestep / self.multiplier, self.shift)

    def percent_to_sigma(self, percent: float) -> float:
        """The noise level when `percent` (0 to 1) of the timesteps are done."""
        return _shifted(min(max(1.0 - percent, 0.0), 1.0), self.shift)


class FluxModelSampling(_Flow, frozen=True, kw_only=True, tag="flux"):
    """A flow with the timesteps of Flux: t -> e^mu / (e^mu + 1/t - 1), and a finer table."""

    mu: float = 1.15

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise levels that schedules count in, rising."""
        return _exponential_table(self.mu)

    @property
    def sigma_min(self) -> float:
        """The lowest noise level of the table."""
        return self.sigmas[0]

    def timestep(self, sigma: float) -> float:
        """What the network is told of `sigma`, which is shifted already."""
        return sigma

    def sigma_at(self, timestep: float) -> float:
        """The noise level of a timestep before the shift."""
        return _exponentially_shifted(timestep, self.mu)

    def percent_to_sigma(self, percent: float) -> float:
        """The noise level when `percent` (0 to 1) of the timesteps are done."""
        return _exponentially_shifted(min(max(1.0 - percent, 0.0), 1.0), self.mu)


def token_mu(num_tokens: float, *, at: tuple[float, float], mu: tuple[float, float]) -> float:
    """The mu for a picture of so many tokens: linear through the two points `at` and `mu`."""
    slope = (mu[1] - mu[0]) / (at[1] - at[0])
    return num_tokens * slope + mu[0] - slope * at[0]


def _shifted(timestep: float, shift: float) -> float:
    return shift * timestep / (1.0 + (shift - 1.0) * timestep)


def _exponentially_shifted(timestep: float, mu: float) -> float:
    if timestep <= 0.0:
        return 0.0
    return math.exp(mu) / (math.exp(mu) + (1.0 / timestep - 1.0))


@lru_cache(maxsize=16)
def _shifted_table(shift: float) -> tuple[float, ...]:
    return tuple(_shifted(index / NUM_SHIFTED, shift) for index in range(1, NUM_SHIFTED + 1))


@lru_cache(maxsize=16)
def _exponential_table(mu: float) -> tuple[float, ...]:
    return tuple(
        _exponentially_shifted(index / NUM_EXPONENTIAL, mu)
        for index in range(1, NUM_EXPONENTIAL + 1)
    )
