"""The toy VAE that the inpainting goldens were recorded with (see README of the goldens)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from nodeloom.graph_import import types
from nodeloom.graph_import.handles import FileIdentity, ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model


class ToyVae(Model):
    """The mean colours of 8x8 blocks, and their mean.

    It records what it is given. What is over at the right and at the bottom is left out.
    """

    def __init__(self) -> None:
        file = FileIdentity(path="toy.safetensors", size_bytes=0, mtime_ns=0)
        key = ModelKey(role=Role.VAE, family="sd15", file=file, dtype="float32")
        super().__init__(ModelRef(key=key))
        self.seen: list[torch.Tensor] = []

    def setup_io(self) -> None:
        self.add_input("pixels", types.IMAGE)
        self.add_output("latent", types.LATENT)

    def load(self, device: str) -> None:
        """It has no weights."""

    def execute(self, **inputs: Any) -> Mapping[str, object]:
        pixels = inputs["pixels"]
        self.seen.append(pixels)
        colours = (pixels[..., :3] * 2.0 - 1.0).movedim(-1, 1)
        means = torch.nn.functional.avg_pool2d(colours, 8)
        return {"latent": torch.cat((means, means.mean(dim=1, keepdim=True)), dim=1)}
