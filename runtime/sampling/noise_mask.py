"""Sampling a part of a picture: what the model sees, and what becomes of its estimate.

The sampler's own x is never masked. Source: ComfyUI 0.8.0, `inpaint.json` of the goldens.
"""

from __future__ import annotations

import torch

from ...graph_import.sampling.model_sampling import ModelSampling
from ..values import SamplingRun
from .masks import fitted, for_batch


def latent_mask(noise_mask: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
    """A LATENT's noise mask for `latents` [B, C, h, w]: [1 or B, 1, h, w], not rounded."""
    pictures = noise_mask.reshape(-1, *noise_mask.shape[-2:])
    return for_batch(fitted(pictures, *latents.shape[-2:]), len(latents)).unsqueeze(1)


def model_input(run: SamplingRun, sigma: float, sampling: ModelSampling) -> torch.Tensor:
    """The noisy latents that the model is evaluated at, [B, C, h, w].

    Where the mask keeps the picture, they are the picture under the run's noise of `sigma`.
    """
    x: torch.Tensor = run.state.x if run.state.x_eval is None else run.state.x_eval
    if run.kept is None:
        return x
    kept, mask = run.kept, run.kept.mask
    picture: torch.Tensor = sampling.noised_picture(kept.latents, kept.noise, sigma)
    return x * mask + picture * (1.0 - mask)


def masked_estimate(run: SamplingRun, denoised: torch.Tensor) -> torch.Tensor:
    """The estimate of x0 with the picture where the mask keeps it."""
    if run.kept is None:
        return denoised
    return denoised * run.kept.mask + run.kept.latents * (1.0 - run.kept.mask)
