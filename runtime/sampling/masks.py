"""Masks brought to the size and the number of latents."""

from __future__ import annotations

import torch


def fitted(mask: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Masks [N, H, W] at `height` x `width`: bilinear, not rounded, [N, height, width]."""
    if mask.shape[1:] == (height, width):
        return mask
    resized = torch.nn.functional.interpolate(
        mask.unsqueeze(1), size=(height, width), mode="bilinear", align_corners=False
    )
    return resized.squeeze(1)


def for_batch(mask: torch.Tensor, count: int) -> torch.Tensor:
    """A mask for each of `count` pictures: the first ones, over again where they are too few.

    A single mask [1, H, W] stays single: it serves them all.
    """
    if len(mask) in (1, count):
        return mask
    return mask[torch.arange(count) % len(mask)]
