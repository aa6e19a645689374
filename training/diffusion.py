"""Noise for training: the sd15 family's levels, noisy latents, and how much each error counts.

Source: DDPM (arXiv 2006.11239); min-SNR weighting (arXiv 2303.09556) with gamma 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from nodeloom.graph_import.families import family

SIGMAS: Final = torch.tensor(family("sd15").model_sampling.sigmas)
NUM_LEVELS: Final = len(SIGMAS)
SCALE_FACTOR: Final = family("sd15").scale_factor
GAMMA: Final = 5.0

# Noisy latents of unit variance [B, 4, h, w] and timesteps [B] -> the noise in them.
Predict = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def noise_loss(latents: torch.Tensor, predict: Predict, generator: torch.Generator) -> torch.Tensor:
    """The weighted error of the predicted noise for scaled latents [B, 4, h, w].

    The levels of a batch are spread evenly, so that its loss varies little.
    """
    count = len(latents)
    places = (torch.arange(count) + torch.rand(count, generator=generator)) / count
    timesteps = (places * NUM_LEVELS).long().clamp(max=NUM_LEVELS - 1)
    noise = torch.randn(latents.shape, generator=generator)
    sigma = SIGMAS[timesteps].reshape(-1, 1, 1, 1)
    noisy = (latents + sigma * noise) / (1.0 + sigma**2).sqrt()
    error = (predict(noisy, timesteps) - noise).square().flatten(1).mean(dim=1)
    weights = (GAMMA * SIGMAS[timesteps] ** 2).clamp(max=1.0)
    return (weights * error).mean()
