"""The families of diffusion models: what sampling must know of each, as plain numbers.

A lowered node names its family ("sd15"); the numbers are looked up where they are used. Values of
the latent formats: recorded from ComfyUI 0.8.0 (`latent_rgb.json` of the goldens).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import msgspec

from .sampling.model_sampling import ModelSampling, model_sampling, scaled_linear


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One family's noise levels and latent format.

    The denoiser's space is `(latent - shift_factor) * scale_factor`.

    Args:
        latent_rgb_factors: [latent_channels][3], a linear map from denoised latents (in the
            denoiser's space) to red, green and blue in -1 to 1, for previews.
        latent_rgb_bias: [3], added to it.
        taesd_decoder_name: the tiny decoder of previews; a file of `vae_approx`, without suffix.
    """

    name: str
    model_sampling: ModelSampling
    latent_channels: int
    scale_factor: float
    shift_factor: float
    latent_rgb_factors: tuple[tuple[float, float, float], ...]
    latent_rgb_bias: tuple[float, float, float]
    taesd_decoder_name: str


@cache
def _families() -> Mapping[str, Family]:
    sd15 = Family(
        name="sd15",
        model_sampling=scaled_linear(beta_start=0.00085, beta_end=0.012, num_timesteps=1000),
        latent_channels=4,
        scale_factor=0.18215,
        shift_factor=0.0,
        latent_rgb_factors=(
            (0.3512, 0.2297, 0.3227),
            (0.325, 0.4974, 0.235),
            (-0.2829, 0.1762, 0.2721),
            (-0.212, -0.2616, -0.7177),
        ),
        latent_rgb_bias=(0.0, 0.0, 0.0),
        taesd_decoder_name="taesd_decoder",
    )
    return MappingProxyType({sd15.name: sd15})


def family(name: str) -> Family:
    """The family called `name`. Raises: KeyError: there is none."""
    return _families()[name]


def sampling_of(family_name: str, text: str) -> ModelSampling:
    """The model sampling that `text` says, or the family's own where it is empty.

    Raises: KeyError: there is no such family; msgspec.ValidationError: the text makes no sense.
    """
    return model_sampling(text) if text else family(family_name).model_sampling
