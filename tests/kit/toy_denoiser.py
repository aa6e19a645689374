"""The toy denoiser that the sampler goldens were recorded with (see README of the goldens)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from nodeloom.graph_import import types
from nodeloom.graph_import.handles import FileIdentity, ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.values import CondEntry, Conditioning


class ToyDenoiser(Model):
    """D(x, s, c) = x (1-w) + w (0.3 tanh(0.7 x + c) + 0.1 m + 0.5 c), w = s^2 / (1 + s^2).

    c is the mean of the context, m the mean of x over height and width, and over the frames where
    there are any. It records the sigma of every call.
    """

    def __init__(self) -> None:
        file = FileIdentity(path="toy.safetensors", size_bytes=0, mtime_ns=0)
        key = ModelKey(role=Role.DENOISER, family="sd15", file=file, dtype="float32")
        super().__init__(ModelRef(key=key))
        self.sigmas: list[float] = []

    def setup_io(self) -> None:
        self.add_input("x", types.LATENT)
        self.add_input("sigma", types.FLOAT)
        self.add_input("context", types.CONDITIONING)
        self.add_output("denoised", types.LATENT)

    def load(self, device: str) -> None:
        """It has no weights."""

    def execute(self, **inputs: Any) -> Mapping[str, object]:
        x, sigma = inputs["x"], inputs["sigma"]
        self.sigmas.append(sigma)
        c = inputs["context"].mean(dim=(1, 2)).reshape(-1, *(1 for _ in x.shape[1:]))
        return {"denoised": toy_denoised(x, sigma, c)}


def toy_denoised(x: torch.Tensor, sigma: float, c: torch.Tensor | float) -> torch.Tensor:
    """The formula of `ToyDenoiser`."""
    m = x.mean(dim=tuple(range(2, x.dim())), keepdim=True)
    w = sigma * sigma / (1.0 + sigma * sigma)
    return x * (1.0 - w) + w * (0.3 * torch.tanh(0.7 * x + c) + 0.1 * m + 0.5 * c)


def steer(value: float) -> Conditioning:
    """A conditioning whose c is `value`."""
    return Conditioning(entries=(CondEntry(cond=torch.full((1, 4, 8), value), pooled=None),))
