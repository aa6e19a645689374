"""What an inpainting UNet sees beside the noisy latents: a mask, and the picture outside of it.

Source: ComfyUI 0.8.0, `concat_cond` in the goldens.
"""

from __future__ import annotations

from typing import Final

import torch

from ...graph_import.families import Family
from ..sampling.latent_format import to_denoiser_space
from ..sampling.masks import for_batch
from ..values import CondEntry, SamplingRun
from .resample import crop_to_aspect, resample

# A grey picture in the denoiser's space, by SD1.5's VAE; recorded.
GREY: Final = (0.8223, -0.6876, 0.6364, 0.1380)


def inpaint_channels(run: SamplingRun, family: Family, entry: CondEntry) -> torch.Tensor:
    """The channels for the run's latents [B, C, h, w]: float32 [B, 1 + C, h, w], the mask first.

    The mask is rounded. What the entry brings comes first, then the run's noise mask and the
    picture that it keeps; without either all is to be painted, and the picture is grey.
    """
    x: torch.Tensor = run.state.x
    mask, picture = _mask(run, entry, x), _picture(run, family, entry, x)
    return torch.cat([_for_batch(part, len(x)).to(x) for part in (mask.round(), picture)], dim=1)


def _mask(run: SamplingRun, entry: CondEntry, x: torch.Tensor) -> torch.Tensor:
    if entry.concat_mask is not None:
        pictures = entry.concat_mask.reshape(-1, 1, *entry.concat_mask.shape[-2:])
        return _sized(pictures, x)
    return torch.ones_like(x[:1, :1]) if run.kept is None else run.kept.mask


def _picture(run: SamplingRun, family: Family, entry: CondEntry, x: torch.Tensor) -> torch.Tensor:
    if entry.concat_latent is not None:
        return to_denoiser_space(_sized(entry.concat_latent, x), family)
    if run.kept is not None:
        return run.kept.latents
    return torch.tensor(GREY).reshape(1, -1, 1, 1).expand(1, -1, *x.shape[2:])


def _sized(pictures: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The middle of pictures, in the shape and size of `x`."""
    height, width = x.shape[-2:]
    if pictures.shape[-2:] == x.shape[-2:]:
        return pictures
    return resample(crop_to_aspect(pictures, width / height), "bilinear", width, height)


def _for_batch(pictures: torch.Tensor, count: int) -> torch.Tensor:
    return for_batch(pictures, count).expand(count, *pictures.shape[1:])
