"""Hints that are latents: encoded at the latents' size, and in the denoiser's scale at last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from kit.op_calls import run_op
from nodeloom.graph_import import types
from nodeloom.graph_import.families import family
from nodeloom.graph_import.handles import FileIdentity, ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.graph_import.sampling.base import SamplerState
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.sampling.latent_format import with_family_channels
from nodeloom.runtime.sampling.noise import sampler_generator
from nodeloom.runtime.values import CallResiduals, CondEntry, Conditioning, Latent, SamplingRun

SD3 = family("sd3")


class Keeper(Model):
    """A model of a test: it keeps its calls and answers with zeros."""

    def __init__(self, role: Role) -> None:
        file = FileIdentity(path="toy", size_bytes=0, mtime_ns=0)
        super().__init__(ModelRef(key=ModelKey(role=role, family="sd3", file=file, dtype="float")))
        self.calls: list[dict[str, Any]] = []

    def setup_io(self) -> None:
        self.add_input("x", types.LATENT)

    def load(self, device: str, check: object = None) -> None:
        """It has no weights."""

    def execute(self, **inputs: Any) -> Mapping[str, object]:
        self.calls.append(inputs)
        if self.ref.key.role is Role.VAE:
            height, width = (side // 8 for side in inputs["pixels"].shape[1:3])
            return {"latent": torch.zeros(1, 16, height, width)}
        return {"residuals": CallResiduals(blocks=(torch.zeros(1, 4, 8),))}


def steer(hint: torch.Tensor, num_items: int = 1, **entry: Any) -> Keeper:
    """A ControlNet's evaluation for 8 x 12 latents; the model with the calls that it got."""
    model = Keeper(Role.CONTROLNET)
    steered = CondEntry(cond=torch.zeros(1, 4, 8), pooled=None, controls=("m",), **entry)
    everywhere = CondEntry(cond=torch.zeros(1, 4, 8), pooled=None)
    args = {
        "sampler": "euler",
        "sigmas": (1.0, 0.5, 0.0),
        "family": "sd3",
        "evaluation": 0,
        "cfg": 5.0,
        "state": SamplingRun(
            state=SamplerState(x=torch.zeros(num_items, 16, 8, 12)), generator=sampler_generator(1)
        ),
        "positive": Conditioning(entries=(steered,)),
        "negative": Conditioning(entries=(everywhere,)),
        "hint_latent": Latent(samples=hint),
        "strength": 1.0,
        "marker": "m",
    }
    run_op("controlnet", args, model=model)
    return model


def test_the_hint_is_fitted_to_the_latents_and_encoded_picture_by_picture() -> None:
    vae = Keeper(Role.VAE)
    pictures = torch.rand(2, 100, 50, 3)
    latent = Latent(samples=torch.zeros(1, 4, 6, 10))
    (encoded,) = run_op("encode_hint", {"hint": pictures, "latent": latent}, model=vae).outputs
    assert isinstance(encoded, Latent)
    assert encoded.samples.shape == (2, 16, 6, 10)
    assert [tuple(call["pixels"].shape) for call in vae.calls] == [(1, 48, 80, 3)] * 2


def test_a_latent_hint_is_scaled_but_not_shifted() -> None:
    hint = torch.randn(1, 16, 8, 12, generator=torch.Generator().manual_seed(0))
    (call,) = steer(hint).calls
    assert torch.equal(call["hint"], hint * SD3.scale_factor)


def test_latent_hints_go_to_a_batch_of_latents_over_and_over() -> None:
    hint = torch.stack([torch.full((16, 8, 12), value) for value in (1.0, 2.0)])
    (call,) = steer(hint, num_items=3).calls
    scale = torch.tensor([1.0, 2.0, 1.0]) * SD3.scale_factor
    assert torch.equal(call["hint"][:, 0, 0, 0], scale)


def test_an_area_of_the_picture_has_no_latent_hint() -> None:
    area = ("latent", 4.0, 6.0, 0.0, 0.0)
    with pytest.raises(NodeFailed, match="can't steer an area"):
        steer(torch.zeros(1, 16, 8, 12), area=area)


def test_only_an_empty_latent_takes_on_the_familys_channels() -> None:
    empty, full = torch.zeros(2, 4, 8, 8), torch.ones(2, 4, 8, 8)
    assert with_family_channels(empty, SD3).shape == (2, 16, 8, 8)
    assert with_family_channels(full, SD3) is full
    own = torch.zeros(2, 16, 8, 8)
    assert with_family_channels(own, SD3) is own
