"""Masked pictures on their way into sampling, as ComfyUI's nodes prepare them."""

from __future__ import annotations

import pytest
import torch
from kit.goldens import Tensors, each_golden_set
from kit.op_calls import run_op
from kit.toy_denoiser import ToyDenoiser, steer
from kit.toy_vae import ToyVae
from nodeloom.graph_import.sampling.samplers import sampler_text
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.values import Conditioning, Latent, SamplingRun

TOLERANCE = 1e-5


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


def growing(**changes: object) -> dict[str, object]:
    """A run of a sampler that doubles the size of its latents in the first of two steps."""
    options = {"scale_ratio": 2.0, "scale_steps": 1, "upscale_method": "bilinear"}
    common = {
        "sampler": sampler_text("lcm_upscale", **options),
        "sigmas": (14.0, 1.0, 0.0),
        "family": "sd15",
    }
    return common | changes


@pytest.mark.parametrize("is_masked", [False, True])
def test_latents_that_grow_can_have_no_mask(is_masked: bool) -> None:
    mask = torch.ones(1, 1, 64, 64) if is_masked else None
    latent = Latent(samples=torch.zeros(1, 4, 8, 8), noise_mask=mask)
    start = growing(latent=latent, seed=1, add_noise=True)
    (state,) = run_op("sample_begin", start).outputs
    sides = {"positive": steer(0.4), "negative": steer(-0.25), "cfg": 3.0}
    step = growing(state=state, evaluation=0, **sides)
    if is_masked:
        with pytest.raises(NodeFailed, match="can't have a noise mask"):
            run_op("denoise", step, model=ToyDenoiser())
        return
    (grown,) = run_op("denoise", step, model=ToyDenoiser()).outputs
    assert isinstance(grown, SamplingRun)
    assert grown.state.x.shape == (1, 4, 16, 16)


def test_half_precision_latents_get_the_noise_of_their_dtype() -> None:
    latent = Latent(samples=torch.zeros(1, 4, 8, 8, dtype=torch.float16))
    common = {"sampler": "euler", "sigmas": (1.0, 0.0), "family": "sd15"}
    (run,) = run_op(
        "sample_begin", {"latent": latent, "seed": 5, "add_noise": True, **common}
    ).outputs
    assert isinstance(run, SamplingRun)
    drawn = torch.randn(
        (1, 4, 8, 8), generator=torch.Generator().manual_seed(5), dtype=torch.float16
    )
    assert torch.equal(run.state.x, drawn.float())
