"""How a denoiser measures noise: its sigma table, and the way between sigmas, timesteps and x0.

`sigma` is the standard deviation of the noise: x = x0 + sigma * noise, or for rectified flows
x = (1 - sigma) * x0 + sigma * noise. Plain floats; where an array goes in, only `+`, `-` and `*`
with floats are asked of it. A model sampling travels as a text, canonical JSON of its parameters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import msgspec

from .base import Array
from .model_sampling_cascade import CascadeModelSampling
from .model_sampling_continuous import (
    AngleModelSampling,
    CosmosModelSampling,
    EdmModelSampling,
)
from .model_sampling_discrete import DiscreteModelSampling
from .model_sampling_flow import FlowModelSampling, FluxModelSampling


class ModelSampling(Protocol):
    """One way of measuring noise; immutable."""

    @property
    def is_flow(self) -> bool:
        """Whether x is a mix of picture and noise whose shares add up to 1."""
        ...

    @property
    def sigma_data(self) -> float:
        """The deviation that pictures are thought to have."""
        ...

    @property
    def sigmas(self) -> tuple[float, ...]:
        """The noise levels that schedules count in, rising."""
        ...

    @property
    def sigma_min(self) -> float:
        """The lowest noise level of the table."""
        ...

    @property
    def sigma_max(self) -> float:
        """The highest noise level of the table."""
        ...

    def timestep(self, sigma: float) -> float:
        """What the network is told of `sigma`, which is above 0."""
        ...

    def sigma_at(self, timestep: float) -> float:
        """The noise level at a timestep; flows shift it, although `timestep` doesn't undo that."""
        ...

    def percent_to_sigma(self, percent: float) -> float:
        """The noise level when `percent` (0 to 1) of the sampling is done.

        At 0 it is above every sigma (flows: the highest), at 1 it is 0.
        """
        ...

    def input_scale(self, sigma: float) -> float:
        """What noisy latents are multiplied by before they enter the network."""
        ...

    def denoised(self, x: Array, output: Array, sigma: float) -> Array:
        """The estimate of x0, from noisy (unscaled) latents and the network's output."""
        ...

    def noised(self, latents: Array, noise: Array, sigma: float) -> Array:
        """Where sampling starts: `latents` (scaled, zero for text to image) under fresh noise."""
        ...

    def noised_whole(self, latents: Array, noise: Array, sigma: float) -> Array:
        """`noised`, as if `sigma` were the highest."""
        ...

    def noised_picture(self, latents: Array, noise: Array, sigma: float) -> Array:
        """A picture's `latents` (scaled) as they look at noise level `sigma`."""
        ...

    def finished(self, x: Array, sigma: float) -> Array:
        """The latents that leave the sampler when the last sigma was `sigma`, often 0."""
        ...


_Known = (
    DiscreteModelSampling
    | EdmModelSampling
    | AngleModelSampling
    | CosmosModelSampling
    | FlowModelSampling
    | FluxModelSampling
    | CascadeModelSampling
)
_DECODER: msgspec.json.Decoder[_Known] = msgspec.json.Decoder(_Known)


def sampling_text(sampling: ModelSampling) -> str:
    """The canonical text of a model sampling: equal ones have equal texts."""
    return msgspec.json.encode(sampling).decode()


@lru_cache(maxsize=64)
def model_sampling(text: str) -> ModelSampling:
    """The model sampling that `sampling_text` wrote. Raises: msgspec.ValidationError."""
    return _DECODER.decode(text)


def scaled_linear(
    *, beta_start: float, beta_end: float, num_timesteps: int
) -> DiscreteModelSampling:
    """The noise levels of Stable Diffusion: betas whose square roots are evenly spaced."""
    return DiscreteModelSampling(
        beta_start=beta_start, beta_end=beta_end, num_timesteps=num_timesteps
    )
