"""How a denoiser measures noise: its sigma table, and the way between sigmas, timesteps and x0.

`sigma` is the standard deviation of the noise on a latent of unit scale: x = x0 + sigma * noise.
Plain floats; where an array goes in, only `+`, `-` and `*` with floats are asked of it.
Source: DDPM (arXiv 2006.11239) for the betas; Karras et al. (arXiv 2206.00364), appendix C.3, for
writing a DDPM as a denoiser over sigma.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final

import msgspec

from .base import Array

SIGMA_BEFORE_ALL: Final = 1e9  # "before the first step": above every sigma of any model


class DiscreteModelSampling(msgspec.Struct, frozen=True, kw_only=True):
    """A noise-predicting (eps) denoiser that was trained on a table of noise levels.

    Args:
        sigmas: the noise level of each timestep, rising.
    """

    sigmas: tuple[float, ...]

    @property
    def sigma_min(self) -> float:
        """The lowest noise level of the table."""
        return self.sigmas[0]

    @property
    def sigma_max(self) -> float:
        """The highest noise level of the table."""
        return self.sigmas[-1]

    def timestep(self, sigma: float) -> int:
        """The timestep whose log-sigma is nearest to that of `sigma`, which is above 0."""
        above = bisect_left(self.sigmas, sigma)
        if above == 0:
            return 0
        if above == len(self.sigmas):
            return above - 1
        below = above - 1
        is_nearer_below = sigma * sigma < self.sigmas[below] * self.sigmas[above]
        return below if is_nearer_below else above

    def sigma_at(self, timestep: float) -> float:
        """The noise level at a fractional timestep: log-sigma is linear between two entries."""
        low = min(max(math.floor(timestep), 0), len(self.sigmas) - 1)
        high = min(low + 1, len(self.sigmas) - 1)
        weight = min(max(timestep - low, 0.0), 1.0)
        log_low, log_high = math.log(self.sigmas[low]), math.log(self.sigmas[high])
        return math.exp((1.0 - weight) * log_low + weight * log_high)

    def percent_to_sigma(self, percent: float) -> float:
        """The noise level when `percent` (0 to 1) of the timesteps are done."""
        if percent <= 0.0:
            return SIGMA_BEFORE_ALL
        if percent >= 1.0:
            return 0.0
        return self.sigma_at((1.0 - percent) * (len(self.sigmas) - 1))

    def input_scale(self, sigma: float) -> float:
        """What noisy latents are multiplied by before they enter the network (unit variance)."""
        return 1.0 / math.sqrt(sigma * sigma + 1.0)

    def denoised(self, x: Array, noise_pred: Array, sigma: float) -> Array:
        """The estimate of x0, from noisy (unscaled) latents and the network's output."""
        return x - noise_pred * sigma

    def noised(self, latents: Array, noise: Array, sigma: float) -> Array:
        """Where sampling starts: `latents` (scaled, zero for text to image) under fresh noise.

        At sigma_max the noise takes the deviation of the whole, sqrt(1 + sigma^2), as if it hid an
        image of unit variance: the network has seen nothing noisier.
        """
        is_max = sigma > self.sigma_max or math.isclose(sigma, self.sigma_max, rel_tol=1e-5)
        if is_max:
            return latents + noise * math.sqrt(1.0 + sigma * sigma)
        return self.noised_picture(latents, noise, sigma)

    def noised_picture(self, latents: Array, noise: Array, sigma: float) -> Array:
        """A picture's `latents` (scaled) as they look at noise level `sigma`."""
        return latents + noise * sigma


def scaled_linear(
    *, beta_start: float, beta_end: float, num_timesteps: int
) -> DiscreteModelSampling:
    """The table of Stable Diffusion: betas whose square roots are evenly spaced.

    Source: LDM (arXiv 2112.10752), appendix; sigma = sqrt((1 - a) / a), a the product of 1 - beta.
    """
    first, last = math.sqrt(beta_start), math.sqrt(beta_end)
    sigmas: list[float] = []
    kept = 1.0
    for index in range(num_timesteps):
        root = first + (last - first) * index / (num_timesteps - 1)
        kept *= 1.0 - root * root
        sigmas.append(math.sqrt((1.0 - kept) / kept))
    return DiscreteModelSampling(sigmas=tuple(sigmas))
