"""Sampling under a noise mask against ComfyUI's latents."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kit.goldens import Tensors, each_golden_set, load_json
from kit.toy_denoiser import ToyDenoiser, steer
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES
from nodeloom.graph_import.sampling.schedules import ksampler_sigmas
from nodeloom.runtime.ops.sampling import sample_end
from nodeloom.runtime.sampling.noise_mask import latent_mask
from nodeloom.runtime.values import Latent

from .sampling_ops import KSampler, advance, call, context, finish

TOLERANCE = 2e-4  # of unscaled latents: they are divided by a small scale factor


class Recorded:
    """The recorded runs of one golden set that KSampler makes with our samplers."""

    def __init__(self, golden_set: str) -> None:
        self.json = load_json(golden_set, "inpaint.json")
        self.tensors = Tensors(golden_set, "inpaint.safetensors")

    def runs(self) -> list[str]:
        return [
            key
            for key in self.json["runs"]
            if key.startswith("eps/") and key.split("/")[1] in SAMPLER_NAMES
            if "diffdiff" not in key
        ]

    def node(self, key: str, **changes: Any) -> KSampler:
        _, sampler, mask, *_ = key.split("/")
        fields = {
            "sampler": sampler,
            "sigmas": tuple(self.json["runs"][key]["sigmas"]),
            "seed": self.json["seed"],
            "cfg": self.json["cfg"],
            "positive": steer(self.json["positive"]),
            "negative": steer(self.json["negative"]),
            "samples": self.tensors["in/latent"],
            "noise_mask": self.tensors[f"in/mask/{mask}"].unsqueeze(1),
        }
        return KSampler(**(fields | changes))


@pytest.fixture
def recorded(golden_set: str) -> Recorded:
    return Recorded(golden_set)


@each_golden_set
def test_masks_are_fitted_as_recorded(recorded: Recorded) -> None:
    cases = [case for case in recorded.json["reshape_mask"] if len(case["shape"]) == 4]
    assert cases
    for case in cases:
        mask = recorded.tensors[f"in/mask/{case['mask']}"]
        ours = latent_mask(mask, torch.zeros(case["shape"])).expand(case["shape"])
        assert (ours - recorded.tensors[case["key"]]).abs().max().item() <= 1e-6, case


@each_golden_set
def test_every_masked_run(recorded: Recorded) -> None:
    for key in recorded.runs():
        node = recorded.node(key)
        denoise = float(key.rsplit("/d", 1)[1])
        sampling = family("sd15").model_sampling
        ours = ksampler_sigmas(sampling, "karras", recorded.json["steps"], denoise, node.sampler)
        assert ours == pytest.approx(node.sigmas, rel=1e-5)
        error = (finish(ToyDenoiser(), node) - recorded.tensors[f"{key}/final"]).abs().max().item()
        assert error <= TOLERANCE, key


@each_golden_set
def test_the_samplers_own_x_is_not_masked(recorded: Recorded) -> None:
    keys = [key for key in recorded.runs() if f"{key}/x" in recorded.tensors.keys]
    for key in keys:
        node = recorded.node(key)
        run = node.begin()
        for evaluation in node.plan():
            theirs = recorded.tensors[f"{key}/x"][evaluation.step]
            assert (run.state.x - theirs).abs().max().item() <= TOLERANCE, (key, evaluation)
            (run,) = advance(ToyDenoiser(), [node.evaluate(run, evaluation.index)])


# These keep noise in the end: that of the last sigma above 0, or of 0.001.
KEEP_NOISE = ("dpm_fast", "dpm_adaptive", "uni_pc", "uni_pc_bh2")


@pytest.mark.parametrize("sampler", [name for name in SAMPLER_NAMES if name not in KEEP_NOISE])
def test_a_mask_of_zeros_gives_the_picture_back_and_one_of_ones_changes_nothing(
    sampler: str,
) -> None:
    recorded = Recorded("kept")
    key = "eps/euler/soft_latent/d1"
    free = finish(ToyDenoiser(), recorded.node(key, sampler=sampler, noise_mask=None))
    for value, wanted in ((0.0, recorded.tensors["in/latent"]), (1.0, free)):
        mask = torch.full((1, 1, 64, 64), value)
        ours = finish(ToyDenoiser(), recorded.node(key, sampler=sampler, noise_mask=mask))
        assert torch.allclose(ours, wanted, atol=1e-5)


def test_the_latent_that_comes_out_keeps_its_mask_and_its_numbers() -> None:
    recorded = Recorded("kept")
    node = recorded.node("eps/euler/latent2/d1", batch_index=(3, 1))
    common = {"sampler": "euler", "sigmas": node.sigmas, "family": "sd15"}
    args = {"state": node.begin(), "latent": node.latent, **common}
    (latent,) = sample_end(context(), [call(args)])[0].outputs
    assert isinstance(latent, Latent)
    assert latent.batch_index == (3, 1)
    assert latent.noise_mask is not None
    assert torch.equal(latent.noise_mask, recorded.tensors["in/mask/latent2"].unsqueeze(1))
