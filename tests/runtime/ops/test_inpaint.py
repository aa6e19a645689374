"""Masked pictures on their way into sampling, as ComfyUI's nodes prepare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from kit.goldens import Tensors, each_golden_set
from kit.op_calls import run_op
from kit.toy_denoiser import steer
from nodeloom.graph_import import types
from nodeloom.graph_import.handles import FileIdentity, ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.values import Conditioning, Latent

TOLERANCE = 1e-5


class ToyVae(Model):
    """The VAE that the goldens were recorded with: the mean colours of 8x8 blocks, and their mean.

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


class Recorded:
    """The recorded nodes of one golden set, with the inputs that their keys name."""

    def __init__(self, golden_set: str) -> None:
        self.tensors = Tensors(golden_set, "inpaint.safetensors")

    def groups(self, node: str) -> list[str]:
        keys = [key for key in self.tensors.keys if key.startswith(f"{node}/")]
        assert keys
        return sorted({key.rpartition("/")[0] for key in keys})

    def inputs(self, group: str) -> dict[str, object]:
        _, image, mask, _ = group.split("/")
        return {
            "pixels": self.tensors[f"in/pixels/{image}"],
            "mask": self.tensors[f"in/pmask/{mask.removeprefix('mask')}"],
        }

    def assert_close(self, ours: torch.Tensor | None, key: str) -> None:
        theirs = self.tensors[key]
        assert ours is not None
        assert ours.shape == theirs.shape, key
        assert (ours - theirs).abs().max().item() <= TOLERANCE, key


@pytest.fixture
def recorded(golden_set: str) -> Recorded:
    return Recorded(golden_set)


@each_golden_set
def test_grey_under_the_mask_and_a_grown_mask(recorded: Recorded) -> None:
    for group in recorded.groups("VAEEncodeForInpaint"):
        vae, size = ToyVae(), int(group.rpartition("grow")[2])
        args = recorded.inputs(group) | {"grow_mask_by": size}
        (latent,) = run_op("vae_encode_inpaint", args, model=vae).outputs
        assert isinstance(latent, Latent)
        recorded.assert_close(latent.samples, f"{group}/samples")
        recorded.assert_close(latent.noise_mask, f"{group}/noise_mask")
        recorded.assert_close(vae.seen[0], f"{group}/pixels_encoded")


@each_golden_set
def test_the_masked_picture_goes_with_both_conditionings(recorded: Recorded) -> None:
    for group in recorded.groups("InpaintModelConditioning"):
        vae, is_masked = ToyVae(), group.endswith("1")
        args = recorded.inputs(group) | {"noise_mask": is_masked}
        args |= {"positive": steer(0.4), "negative": steer(-0.25)}
        *sides, latent = run_op("inpaint_conditioning", args, model=vae).outputs
        assert isinstance(latent, Latent)
        for side in sides:
            assert isinstance(side, Conditioning)
            (entry,) = side.entries
            recorded.assert_close(entry.concat_latent, f"{group}/concat_latent_image")
            recorded.assert_close(entry.concat_mask, f"{group}/concat_mask")
        recorded.assert_close(latent.samples, f"{group}/samples")
        if is_masked:
            recorded.assert_close(latent.noise_mask, f"{group}/noise_mask")
        else:
            assert latent.noise_mask is None
        for number, pixels in enumerate(vae.seen):
            recorded.assert_close(pixels, f"{group}/pixels_encoded{number}")


def test_several_pictures_under_one_mask_and_under_two() -> None:
    pixels = torch.rand(3, 16, 24, 3)
    for num_masks in (1, 2):
        mask = (torch.rand(num_masks, 16, 24) > 0.5).float()
        vae = ToyVae()
        args = {"pixels": pixels, "mask": mask, "grow_mask_by": 0}
        (latent,) = run_op("vae_encode_inpaint", args, model=vae).outputs
        assert isinstance(latent, Latent)
        assert latent.samples.shape == (3, 4, 2, 3)
        keep = (1.0 - mask)[torch.arange(3) % num_masks].unsqueeze(-1)
        assert torch.allclose(torch.cat(vae.seen), (pixels - 0.5) * keep + 0.5)


def test_a_mask_replaces_the_one_before_and_leaves_the_rest() -> None:
    samples, mask = torch.rand(2, 4, 8, 8), torch.rand(1, 64, 64)
    old = Latent(samples=samples, noise_mask=torch.zeros(1, 1, 8, 8), batch_index=(4, 2))
    (latent,) = run_op("set_noise_mask", {"samples": old, "mask": mask}).outputs
    assert isinstance(latent, Latent)
    assert latent.batch_index == (4, 2)
    assert latent.samples is samples
    assert latent.noise_mask is not None
    assert torch.equal(latent.noise_mask, mask.unsqueeze(1))
