"""What a network's output means: the arithmetic from noisy latents and output to x0.

Plain floats; of arrays only `+`, `-` and `*` with floats are asked. `sigma_data` is the deviation
that pictures are thought to have. Source: Karras et al. (arXiv 2206.00364), table 1 and appendix
C.3; v prediction: Salimans and Ho (arXiv 2202.00512), over sigma.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final

from .base import Array

SIGMA_BEFORE_ALL: Final = 1e9  # "before the first step": above every sigma of any model
SIGMA_MAX_TOLERANCE: Final = 1e-5  # relative


class Prediction(StrEnum):
    """What a network says, by ComfyUI's names."""

    EPS = "eps"  # the noise
    V = "v_prediction"  # the velocity between picture and noise
    X0 = "x0"  # the picture
    EDM = "edm"  # what its input leaves to be said of the picture
    IMG_TO_IMG = "img_to_img"  # the picture, from an input that is not scaled
    LCM = "lcm"  # the noise, of a consistency model


def input_scale(prediction: Prediction, sigma: float, sigma_data: float) -> float:
    """What noisy latents are multiplied by before they enter the network (unit variance)."""
    if prediction is Prediction.IMG_TO_IMG:
        return 1.0
    return 1.0 / math.sqrt(sigma * sigma + sigma_data * sigma_data)


def estimate(
    prediction: Prediction, x: Array, output: Array, sigma: float, sigma_data: float
) -> Array:
    """The estimate of x0, from noisy (unscaled) latents and the network's output."""
    match prediction:
        case Prediction.EPS | Prediction.LCM:
            return x - output * sigma
        case Prediction.X0 | Prediction.IMG_TO_IMG:
            return output
        case Prediction.V | Prediction.EDM:
            variance, data_variance = sigma * sigma, sigma_data * sigma_data
            kept = x * (data_variance / (variance + data_variance))
            said = output * (sigma * sigma_data / math.sqrt(variance + data_variance))
            return kept - said if prediction is Prediction.V else kept + said


def is_highest(sigma: float, sigma_max: float) -> bool:
    """Whether sampling at `sigma` starts from noise alone."""
    return sigma > sigma_max or math.isclose(sigma, sigma_max, rel_tol=SIGMA_MAX_TOLERANCE)


def whole_noise(latents: Array, noise: Array, sigma: float) -> Array:
    """`latents` where sampling starts from noise alone: it takes the deviation of the whole.

    That is sqrt(1 + sigma^2), as if it hid an image of unit variance: the network has seen nothing
    noisier.
    """
    return latents + noise * math.sqrt(1.0 + sigma * sigma)
