"""What nodes do to latents in place of a picture: tone mapping and sharpening.

All take and give float32 [B, C, h, w].
"""

from __future__ import annotations

from typing import Final

import torch

TINY: Final = 1e-10
LEAST_LENGTH: Final = 1e-6
TOP_DEVIATIONS: Final = 5.0  # above the mean length; as recorded from ComfyUI 0.8.0
SHARPEN_STRENGTH: Final = 10.0  # times alpha, as recorded from ComfyUI 0.8.0


def tonemap_reinhard(latents: torch.Tensor, multiplier: float) -> torch.Tensor:
    """Lengths of the channel vectors compressed as m / (1 + m), towards five deviations.

    Source: Reinhard et al. 2002, "Photographic tone reproduction for digital images", equation 3.
    """
    length = torch.linalg.vector_norm(latents, dim=1, keepdim=True) + TINY
    mean = length.mean(dim=(1, 2, 3), keepdim=True)
    deviation = length.std(dim=(1, 2, 3), keepdim=True)
    top = (deviation * TOP_DEVIATIONS + mean) * multiplier
    share = length / top
    mapped: torch.Tensor = latents / length * (share / (1.0 + share) * top)
    return mapped


def sharpened(latents: torch.Tensor, radius: int, sigma: float, alpha: float) -> torch.Tensor:
    """Directions of the channel vectors with their surroundings subtracted; lengths are kept.

    An unsharp mask: the Gaussian spans -1 to 1 over `2 * radius + 1` positions, mirrored borders.
    """
    count = 2 * radius + 1
    steps = torch.linspace(-1.0, 1.0, count)
    kernel = torch.exp(-(steps[:, None] ** 2 + steps[None, :] ** 2) / (2.0 * sigma * sigma))
    kernel = kernel / kernel.sum() * -(alpha * SHARPEN_STRENGTH)
    kernel[radius, radius] += 1.0 - kernel.sum()
    length = torch.linalg.vector_norm(latents, dim=1, keepdim=True) + LEAST_LENGTH
    mode = "reflect" if radius < min(latents.shape[-2:]) else "replicate"
    padded = torch.nn.functional.pad(latents / length, (radius,) * 4, mode=mode)
    channels = latents.shape[1]
    weight = kernel.to(latents.device).expand(channels, 1, count, count)
    sharper: torch.Tensor = torch.nn.functional.conv2d(padded, weight, groups=channels) * length
    return sharper
