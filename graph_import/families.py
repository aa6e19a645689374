"""The families of diffusion models: what sampling must know of each, as plain numbers.

A lowered node names its family ("sd15"); the numbers are looked up where they are used. Values of
the latent formats: recorded from ComfyUI 0.8.0 (`latent_rgb.json` of the goldens).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import msgspec

from .sampling.base import Course
from .sampling.model_sampling import ModelSampling, model_sampling, scaled_linear
from .sampling.model_sampling_flow import FlowModelSampling


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One family's noise levels and latent format.

    The denoiser's space is `(latent - shift_factor) * scale_factor`.

    Args:
        latent_rgb_factors: [latent_channels][3], a linear map from denoised latents (in the
            denoiser's space) to red, green and blue in -1 to 1, for previews.
        latent_rgb_bias: [3], added to it.
        taesd_decoder_name: the tiny decoder of previews; a file of `vae_approx`, without suffix.
        has_latent_hints: the hints of its ControlNets are encoded pictures, scaled, not shifted.
    """

    name: str
    model_sampling: ModelSampling
    latent_channels: int
    scale_factor: float
    shift_factor: float
    latent_rgb_factors: tuple[tuple[float, float, float], ...]
    latent_rgb_bias: tuple[float, float, float]
    taesd_decoder_name: str
    has_latent_hints: bool = False


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
    sd3 = Family(
        name="sd3",
        model_sampling=FlowModelSampling(shift=3.0),
        latent_channels=16,
        scale_factor=1.5305,
        shift_factor=0.0609,
        latent_rgb_factors=(
            (-0.0922, -0.0175, 0.0749),
            (0.0311, 0.0633, 0.0954),
            (0.1994, 0.0927, 0.0458),
            (0.0856, 0.0339, 0.0902),
            (0.0587, 0.0272, -0.0496),
            (-0.0006, 0.1104, 0.0309),
            (0.0978, 0.0306, 0.0427),
            (-0.0042, 0.1038, 0.1358),
            (-0.0194, 0.002, 0.0669),
            (-0.0488, 0.013, -0.0268),
            (0.0922, 0.0988, 0.0951),
            (-0.0278, 0.0524, -0.0542),
            (0.0332, 0.0456, 0.0895),
            (-0.0069, -0.003, -0.081),
            (-0.0596, -0.0465, -0.0293),
            (-0.1448, -0.1463, -0.1189),
        ),
        latent_rgb_bias=(0.2394, 0.2135, 0.1925),
        taesd_decoder_name="taesd3_decoder",
        has_latent_hints=True,
    )
    return MappingProxyType({one.name: one for one in (sd15, sd3)})


def family(name: str) -> Family:
    """The family called `name`. Raises: KeyError: there is none."""
    return _families()[name]


def has_latent_hints(name: str) -> bool:
    """Whether ControlNets of the family called `name` look at latents; an unknown one's do not."""
    known = _families().get(name)
    return known is not None and known.has_latent_hints


def sampling_of(family_name: str, text: str) -> ModelSampling:
    """The model sampling that `text` says, or the family's own where it is empty.

    Raises: KeyError: there is no such family; msgspec.ValidationError: the text makes no sense.
    """
    return model_sampling(text) if text else family(family_name).model_sampling


def course_of(family_name: str, text: str, sigmas: tuple[float, ...]) -> Course:
    """What a run over `sigmas` goes along. Raises: as `sampling_of`."""
    return Course(sigmas, sampling_of(family_name, text))
