"""Whole runs of the samplers through the ops, against ComfyUI's latents at every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from kit.goldens import Tensors, each_golden_set, load_json
from kit.toy_denoiser import ToyDenoiser, steer
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.schedules import ksampler_sigmas, step_window
from nodeloom.runtime.sampling.guidance import GuidedRow, guide

from .sampling_ops import KSampler, advance, finish

SCALE = family("sd15").scale_factor
TOLERANCE = 1e-4
EVERY_STEP = ("euler", "euler_ancestral", "heun", "dpmpp_2m")  # what the thinned set has
every_sampler = pytest.mark.parametrize("name", EVERY_STEP)


class Recorded:
    """The recorded runs of one golden set."""

    def __init__(self, golden_set: str) -> None:
        self.json = load_json(golden_set, "samplers.json")
        self.tensors = Tensors(golden_set, "samplers.safetensors")

    def keys(self, group: str, name: str) -> list[str]:
        keys = [key for key in self.json["runs"] if key.startswith(f"{group}/{name}/")]
        assert keys
        return keys

    def node(self, key: str, *, seed: int, cfg: float, samples: torch.Tensor) -> KSampler:
        return KSampler(
            sampler=key.split("/")[1],
            sigmas=tuple(self.json["runs"][key]["sigmas"]),
            seed=seed,
            cfg=cfg,
            positive=steer(self.json["positive"]),
            negative=steer(self.json["negative"]),
            samples=samples,
        )


@pytest.fixture
def recorded(golden_set: str) -> Recorded:
    return Recorded(golden_set)


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, what: object) -> None:
    assert (ours - theirs).abs().max().item() <= TOLERANCE, what


@each_golden_set
@every_sampler
def test_every_step_of_text_to_image(recorded: Recorded, name: str) -> None:
    """The recorded runs have a scale factor of 1, ours that of SD1.5: it is taken out again."""
    for key in recorded.keys("eps", name):
        cfg = float(key.rsplit("cfg", 1)[1])
        node = recorded.node(key, seed=42, cfg=cfg, samples=torch.zeros(2, 4, 8, 8))
        model = ToyDenoiser()
        run = node.begin()
        for evaluation in node.plan():
            is_first = run.state.x_eval is None
            if is_first and f"{key}/x" in recorded.tensors.keys:
                assert_close(run.state.x, recorded.tensors[f"{key}/x"][evaluation.step], key)
            if is_first and f"{key}/denoised" in recorded.tensors.keys:
                row = GuidedRow(
                    x=run.state.x,
                    sigma=evaluation.sigma,
                    positive=node.positive,
                    negative=node.negative,
                    cfg_scale=cfg,
                    family=family("sd15"),
                )
                denoised = guide(ToyDenoiser(), [row])[0].denoised
                assert_close(denoised, recorded.tensors[f"{key}/denoised"][evaluation.step], key)
            (run,) = advance(model, [node.evaluate(run, evaluation.index)])
        assert_close(node.end(run) * SCALE, recorded.tensors[f"{key}/final"], key)
        sides = 1 if cfg == 1.0 else 2
        assert model.sigmas[::sides] == recorded.json["runs"][key]["calls_sigma"]


@each_golden_set
@every_sampler
def test_few_steps_of_other_schedules(recorded: Recorded, name: str) -> None:
    for key in recorded.keys("eps_more", name):
        node = recorded.node(key, seed=42, cfg=5.0, samples=torch.zeros(2, 4, 8, 8))
        assert_close(finish(ToyDenoiser(), node) * SCALE, recorded.tensors[f"{key}/final"], key)


@each_golden_set
@pytest.mark.parametrize("name", [name for name in EVERY_STEP if name != "heun"])
def test_image_to_image(recorded: Recorded, name: str) -> None:
    for key in recorded.keys("eps_i2i", name):
        samples = recorded.tensors["in/i2i_latent"]
        node = recorded.node(key, seed=7, cfg=3.0, samples=samples)
        denoise = float(key.rsplit("/d", 1)[1])
        ours = ksampler_sigmas(family("sd15").model_sampling, "karras", 6, denoise, name)
        assert ours == pytest.approx(node.sigmas, rel=1e-5)
        error = (finish(ToyDenoiser(), node) - recorded.tensors[f"{key}/final"]).abs().max().item()
        assert error <= TOLERANCE / SCALE, key


@each_golden_set
def test_two_windows_of_one_schedule(recorded: Recorded) -> None:
    """KSamplerAdvanced twice: noise is left over after the first, none is added before the second.

    The recorded latents are those of the node: unscaled.
    """
    keys = [key for key in recorded.json["runs"] if key.startswith("eps_adv/")]
    for key in [key for key in keys if key.split("/")[1] in EVERY_STEP]:
        whole = recorded.node(key, seed=7, cfg=3.0, samples=torch.zeros(2, 4, 8, 8))
        first = replace(whole, sigmas=step_window(whole.sigmas, start=0, end=5, keeps_noise=True))
        stage1 = finish(ToyDenoiser(), first)
        error = (stage1 - recorded.tensors[f"{key}/stage1"]).abs().max().item()
        assert error <= TOLERANCE / SCALE, key
        rest = step_window(whole.sigmas, start=5, end=10000, keeps_noise=False)
        second = replace(whole, sigmas=rest, seed=11, samples=stage1, adds_noise=False)
        error = (finish(ToyDenoiser(), second) - recorded.tensors[f"{key}/final"]).abs().max()
        assert error.item() <= TOLERANCE / SCALE, key


@each_golden_set
def test_an_all_zero_latent_starts_as_pure_noise(recorded: Recorded) -> None:
    sigmas: Any = recorded.json["runs"]["eps/euler/n6/cfg1"]["sigmas"]
    node = recorded.node("eps/euler/n6/cfg1", seed=42, cfg=1.0, samples=torch.zeros(2, 4, 8, 8))
    noise = recorded.tensors["in/noise"]
    assert_close(node.begin().state.x, noise * (1.0 + sigmas[0] ** 2) ** 0.5, "start")
