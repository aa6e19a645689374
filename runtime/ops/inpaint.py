"""Pictures with a masked part that is to be painted anew: what sampling starts from.

Source: ComfyUI 0.8.0, `inpaint.json` of the goldens.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from ..sampling.masks import fitted, for_batch
from ..values import LATENT_PIXELS, Conditioning, Latent
from .arguments import argument, image_argument, loaded, mask_argument
from .base import OpCall, OpContext, OpResult
from .conditioning import limited
from .latent import one_by_one


def set_noise_mask(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """`samples` with `mask` for its noise mask."""
    results: list[OpResult] = []
    for call in calls:
        latent, mask = argument(call, "samples", Latent), mask_argument(call, "mask")
        masked = msgspec.structs.replace(latent, noise_mask=mask.unsqueeze(1))
        results.append(OpResult(outputs=(masked,)))
    return results


def vae_encode_inpaint(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The latents of `pixels` with grey under `mask`, which grows by `grow_mask_by` pixels.

    The grey doesn't grow: what is sampled anew reaches a little into the picture.
    """
    model = loaded(context)
    results: list[OpResult] = []
    for call in calls:
        pixels, mask = _on_whole_latents(
            image_argument(call, "pixels"), mask_argument(call, "mask")
        )
        samples = one_by_one(context, model, "pixels", _greyed(pixels, mask), "latent")
        grown = _grown(mask, argument(call, "grow_mask_by", int))
        latent = Latent(samples=samples, noise_mask=grown.round().unsqueeze(1))
        results.append(OpResult(outputs=(latent,)))
    return results


def inpaint_conditioning(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Both conditionings with the masked picture on them, and the picture's latents.

    An inpainting denoiser takes the masked picture as further channels; others leave it.
    """
    model = loaded(context)
    results: list[OpResult] = []
    for call in calls:
        whole = image_argument(call, "pixels")
        pixels, mask = _on_whole_latents(whole, mask_argument(call, "mask"))
        masked = one_by_one(context, model, "pixels", _greyed(pixels, mask), "latent")
        sides = [
            _with_picture(call, name, masked, mask.unsqueeze(1))
            for name in ("positive", "negative")
        ]
        noise_mask = mask.unsqueeze(1) if argument(call, "noise_mask", bool) else None
        samples = one_by_one(context, model, "pixels", whole, "latent")
        latent = Latent(samples=samples, noise_mask=noise_mask)
        results.append(OpResult(outputs=(*sides, latent)))
    return results


def _with_picture(
    call: OpCall, name: str, latents: torch.Tensor, mask: torch.Tensor
) -> Conditioning:
    return limited(
        call,
        tuple(
            msgspec.structs.replace(entry, concat_latent=latents, concat_mask=mask)
            for entry in argument(call, name, Conditioning).entries
        ),
    )


def _on_whole_latents(
    pixels: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The middle of picture [B, H, W, C] and mask [N, H, W] that whole latents cover."""
    height, width = pixels.shape[1:3]
    mask = fitted(mask, height, width)
    rows, columns = _middle(height), _middle(width)
    return pixels[:, rows, columns], mask[:, rows, columns]


def _middle(length: int) -> slice:
    start = length % LATENT_PIXELS // 2
    return slice(start, start + length // LATENT_PIXELS * LATENT_PIXELS)


def _greyed(pixels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The picture's colours, grey (0.5) where the rounded mask is 1."""
    keep = 1.0 - for_batch(mask, len(pixels)).round().unsqueeze(-1)
    return (pixels[..., :3] - 0.5) * keep + 0.5


def _grown(mask: torch.Tensor, size: int) -> torch.Tensor:
    """The rounded mask, spread over squares of `size` pixels; as it is for 0."""
    if size == 0:
        return mask
    before = size // 2
    padded = torch.nn.functional.pad(mask.round(), (before, size - 1 - before) * 2)
    spread = torch.nn.functional.max_pool2d(padded.unsqueeze(1), size, stride=1)
    return spread.squeeze(1).clamp(0.0, 1.0)
