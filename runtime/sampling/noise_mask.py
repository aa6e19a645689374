"""Sampling a part of a picture: what the model sees, and what becomes of its estimate.

The sampler's own x is never masked. Source: ComfyUI 0.8.0, `inpaint.json` of the goldens.
"""

from __future__ import annotations

import torch

from ...graph_import.sampling.model_sampling import ModelSampling
from ..values import KeptPicture, SamplingRun
from .masks import fitted, for_batch


def latent_mask(noise_mask: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
    """A LATENT's noise mask for `latents`, not rounded.

    [1 or B, 1, h, w] for [B, C, h, w]; for [B, C, frames, h, w] the masks are those of frames, and
    it is [1, 1, frames, h, w].
    """
    pictures = noise_mask.reshape(-1, *noise_mask.shape[-2:])
    if latents.ndim == 5:
        return torch.nn.functional.interpolate(
            pictures[None, None], size=latents.shape[2:], mode="trilinear", align_corners=False
        )
    return for_batch(fitted(pictures, *latents.shape[-2:]), len(latents)).unsqueeze(1)


def model_input(run: SamplingRun, sigma: float, sampling: ModelSampling) -> torch.Tensor:
    """The noisy latents that the model is evaluated at, like the run's.

    Where the mask keeps the picture, they are the picture under the run's noise of `sigma`.
    """
    x: torch.Tensor = run.state.x if run.state.x_eval is None else run.state.x_eval
    if run.kept is None:
        return x
    kept, mask = run.kept, _mask_at(run.kept, sigma, sampling)
    picture: torch.Tensor = sampling.noised_picture(kept.latents, kept.noise, sigma)
    return x * mask + picture * (1.0 - mask)


def masked_estimate(
    run: SamplingRun, denoised: torch.Tensor, sigma: float, sampling: ModelSampling
) -> torch.Tensor:
    """The estimate of x0 at `sigma` with the picture where the mask keeps it."""
    if run.kept is None:
        return denoised
    mask = _mask_at(run.kept, sigma, sampling)
    return denoised * mask + run.kept.latents * (1.0 - mask)


def _mask_at(kept: KeptPicture, sigma: float, sampling: ModelSampling) -> torch.Tensor:
    """The mask at `sigma`; by sigma, a place is sampled once its value is what is left of the way.

    The way is measured in the model's timesteps, and `by_sigma` below 1 mixes in the mask as it is:
    recorded from ComfyUI 0.8.0. Source: Differential Diffusion (arXiv 2306.00950), section 3.
    """
    if kept.by_sigma == 0.0:
        return kept.mask
    times = (sigma, kept.start_sigma, sampling.sigma_min)
    now, start, end = (sampling.timestep(time) for time in times)
    left = (now - end) / (start - end) if start > end else 0.0
    sampled = (kept.mask >= left).to(kept.mask.dtype)
    return sampled * kept.by_sigma + kept.mask * (1.0 - kept.by_sigma)
