"""Between LATENT sockets (unscaled) and the denoiser's space, and where sampling starts in it."""

from __future__ import annotations

import torch

from ...graph_import.families import Family


def to_denoiser_space(samples: torch.Tensor, family: Family) -> torch.Tensor:
    """Shift and scale latents [B, C, h, w]; all-zero ones stay zero: they mean "no image"."""
    if not bool(torch.count_nonzero(samples)):
        return samples
    return (samples - family.shift_factor) * family.scale_factor


def from_denoiser_space(x: torch.Tensor, family: Family) -> torch.Tensor:
    """Undo scale and shift of latents [B, C, h, w]."""
    return x / family.scale_factor + family.shift_factor


def noised_start(
    latents: torch.Tensor, noise: torch.Tensor, sigmas: tuple[float, ...], family: Family
) -> torch.Tensor:
    """The x of the first evaluation: scaled latents under noise of the first sigma.

    Without sigmas there is nothing to do, and x is the latents.
    """
    if not sigmas:
        return latents
    noised: torch.Tensor = family.model_sampling.noised(latents, noise, sigmas[0])
    return noised
