"""The bodies that go between latents and pictures."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...graph_import.model import Model
from ..errors import NodeFailed
from ..values import Latent
from .arguments import argument, image_argument, loaded
from .base import OpCall, OpContext, OpResult


def vae_decode(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """samples LATENT -> IMAGE."""
    model = loaded(context)
    results = []
    for call in calls:
        samples = argument(call, "samples", Latent).samples
        images = one_by_one(context, model, "samples", samples, "image")
        results.append(OpResult(outputs=(images,)))
    return results


def vae_encode(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """pixels IMAGE -> LATENT."""
    model = loaded(context)
    results = []
    for call in calls:
        pixels = image_argument(call, "pixels")
        samples = one_by_one(context, model, "pixels", pixels, "latent")
        results.append(OpResult(outputs=(Latent(samples=samples),)))
    return results


def one_by_one(
    context: OpContext, model: Model, given: str, batch: torch.Tensor, wanted: str
) -> torch.Tensor:
    """Run a batch picture by picture, so that it can be cancelled between two."""
    parts: list[torch.Tensor] = []
    for one in torch.split(batch, 1):
        context.check_cancelled()
        part = model.execute(**{given: one})[wanted]
        if not isinstance(part, torch.Tensor):
            raise NodeFailed(f"the VAE gave no {wanted}")
        parts.append(part)
    return torch.cat(parts)
