"""Denoisers that were trained on a table of noise levels, from betas.

Source: DDPM (arXiv 2006.11239) for the betas, sigma = sqrt((1 - a) / a) with a the product of
1 - beta; LDM (arXiv 2112.10752), appendix, for betas whose square roots are evenly spaced.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import Final

import msgspec

from .base import Array
from .predictions import (
    SIGMA_BEFORE_ALL,
    Prediction,
    estimate,
    input_scale,
    is_highest,
    whole_noise,
)

# A zero terminal SNR would be an infinite sigma; ComfyUI stops here (recorded).
ZERO_SNR_SIGMA: Final = 4518.76367
# Of the boundary condition of Luo et al. (arXiv 2310.04378), section 4.1; recorded, too.
LCM_TIMESTEP_SCALE: Final = 10.0
LCM_SIGMA_DATA: Final = 0.5


class DiscreteModelSampling(
    msgspec.Struct, frozen=True, kw_only=True, tag="discrete", forbid_unknown_fields=True
):
    """A denoiser of a table of noise levels.

    Args:
        beta_start, beta_end: of the first and the last timestep.
        is_linear: the betas are evenly spaced; else their square roots are.
        is_zero_snr: rescaled so that the last timestep is noise alone (arXiv 2305.08891).
        stride: only every so many timesteps were trained (a distilled model).
    """

    prediction: Prediction = Prediction.EPS
    beta_start: float = 0.00085
    beta_end: float = 0.012
    num_timesteps: int = 1000
    is_linear: bool = False
    is_zero_snr: bool = False
    stride: int = 1

    is_flow = False
    sigma_data = 1.0

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise level of each timestep, rising."""
        return _table(self)

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
        return self._entry(self.sigmas, sigma) * self.stride + self.stride - 1

    def _entry(self, sigmas: tuple[float, ...], sigma: float) -> int:
        above = bisect_left(sigmas, sigma)
        if above == 0:
            return 0
        if above == len(sigmas):
            return above - 1
        below = above - 1
        is_nearer_below = sigma * sigma < sigmas[below] * sigmas[above]
        return below if is_nearer_below else above

    def sigma_at(self, timestep: float) -> float:
        """The noise level at a fractional timestep: log-sigma is linear between two entries."""
        sigmas = self.sigmas
        entry = (timestep - (self.stride - 1)) / self.stride
        low = min(max(math.floor(entry), 0), len(sigmas) - 1)
        high = min(low + 1, len(sigmas) - 1)
        weight = min(max(entry - low, 0.0), 1.0)
        log_low, log_high = math.log(sigmas[low]), math.log(sigmas[high])
        return math.exp((1.0 - weight) * log_low + weight * log_high)

    def percent_to_sigma(self, percent: float) -> float:
        """The noise level when `percent` (0 to 1) of the timesteps are done."""
        if percent <= 0.0:
            return SIGMA_BEFORE_ALL
        if percent >= 1.0:
            return 0.0
        return self.sigma_at((1.0 - percent) * (self.num_timesteps - 1))

    def input_scale(self, sigma: float) -> float:
        """What noisy latents are multiplied by before they enter the network."""
        return input_scale(self.prediction, sigma, 1.0)

    def denoised(self, x: Array, output: Array, sigma: float) -> Array:
        """The estimate of x0, from noisy (unscaled) latents and the network's output.

        A consistency model's is x itself where no noise is left. Source: LCM (arXiv 2310.04378),
        appendix.
        """
        guess = estimate(self.prediction, x, output, sigma, 1.0)
        if self.prediction is not Prediction.LCM:
            return guess
        scaled = self.timestep(sigma) * LCM_TIMESTEP_SCALE
        length = scaled * scaled + LCM_SIGMA_DATA * LCM_SIGMA_DATA
        kept = LCM_SIGMA_DATA * LCM_SIGMA_DATA / length
        return guess * (scaled / math.sqrt(length)) + x * kept

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


@lru_cache(maxsize=16)
def _table(sampling: DiscreteModelSampling) -> tuple[float, ...]:
    kept = list(accumulate((1.0 - beta for beta in _betas(sampling)), mul))
    sigmas = [math.sqrt((1.0 - a) / a) for a in kept]
    if sampling.is_zero_snr:
        sigmas = _without_terminal_signal(kept)
    return tuple(sigmas[sampling.stride - 1 :: sampling.stride])


def _betas(sampling: DiscreteModelSampling) -> list[float]:
    first, last, count = sampling.beta_start, sampling.beta_end, sampling.num_timesteps
    if sampling.is_linear:
        return [first + (last - first) * index / (count - 1) for index in range(count)]
    first, last = math.sqrt(first), math.sqrt(last)
    roots = [first + (last - first) * index / (count - 1) for index in range(count)]
    return [root * root for root in roots]


def _without_terminal_signal(kept: list[float]) -> list[float]:
    """Sigmas after shifting the signal's share so that the last timestep has none.

    Source: Lin et al. (arXiv 2305.08891), algorithm 1.
    """
    signals = [math.sqrt(a) for a in kept]
    first, last = signals[0], signals[-1]
    shifted = [(signal - last) * first / (first - last) for signal in signals[:-1]]
    return [*(math.sqrt(1.0 / (signal * signal) - 1.0) for signal in shifted), ZERO_SNR_SIGMA]
