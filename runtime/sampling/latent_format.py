"""Between LATENT sockets (unscaled) and the denoiser's space."""

from __future__ import annotations

import torch

from ...graph_import.families import Family


def with_family_channels(samples: torch.Tensor, family: Family) -> torch.Tensor:
    """Latents [B, C, ...]; all-zero ones, which mean "no image", with the family's channels.

    So an empty latent serves any family, whichever node made it.
    """
    if samples.shape[1] == family.latent_channels or bool(torch.count_nonzero(samples)):
        return samples
    return samples.new_zeros((len(samples), family.latent_channels, *samples.shape[2:]))


def to_denoiser_space(samples: torch.Tensor, family: Family) -> torch.Tensor:
    """Shift and scale latents [B, C, h, w]; all-zero ones stay zero: they mean "no image"."""
    if not bool(torch.count_nonzero(samples)):
        return samples
    return (samples - family.shift_factor) * family.scale_factor


def from_denoiser_space(x: torch.Tensor, family: Family) -> torch.Tensor:
    """Undo scale and shift of latents [B, C, h, w]."""
    return x / family.scale_factor + family.shift_factor
