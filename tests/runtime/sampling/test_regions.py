"""Several entries a side, on areas, under masks and in parts of the sampling, as ComfyUI has it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kit.goldens import Tensors, each_golden_set, load_json
from kit.toy_denoiser import ToyDenoiser
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.schedules import ksampler_sigmas
from nodeloom.runtime.sampling.calls import PlannedCall, plan_calls
from nodeloom.runtime.sampling.guidance import GuidedRow, guide
from nodeloom.runtime.values import CondEntry, Conditioning

from .sampling_ops import KSampler, finish

SD15 = family("sd15")
TOLERANCE = 1e-5


class Recorded:
    """The recorded cases of one golden set; without frames, and without another node pack's."""

    def __init__(self, golden_set: str) -> None:
        self.json = load_json(golden_set, "conds.json")
        self.tensors = Tensors(golden_set, "conds.safetensors")
        self.cases = {
            name: case
            for name, case in self.json["cases"].items()
            if not name.startswith(("5d_", "default_"))
        }

    def side(self, name: str, side: str) -> Conditioning:
        return Conditioning(entries=tuple(map(self._entry, self.cases[name][side])))

    def _entry(self, recorded: Any) -> CondEntry:
        extra = recorded["extra"]
        rows = torch.tensor(recorded["cond"]["rows"]).reshape(1, -1, 1).expand(1, -1, 8)
        area = extra.get("area")
        if area is not None:
            area = tuple(area) if area[0] == "percentage" else ("latent", *area)
        return CondEntry(
            cond=rows,
            pooled=None,
            area=area,
            strength=extra.get("strength", 1.0),
            mask=self.tensors[extra["mask"]["tensor"]] if "mask" in extra else None,
            mask_strength=extra.get("mask_strength", 1.0),
            is_mask_bounds=extra.get("set_area_to_bounds", False),
            start_percent=extra.get("start_percent", 0.0),
            end_percent=extra.get("end_percent", 1.0),
        )

    def evaluations(self, name: str) -> list[tuple[str, float]]:
        keys = [key for key in self.cases[name]["at"] if key.startswith("eps@")]
        return [(key, float(key.removeprefix("eps@"))) for key in keys]


@pytest.fixture
def recorded(golden_set: str) -> Recorded:
    return Recorded(golden_set)


@each_golden_set
def test_both_sides_of_every_case(recorded: Recorded) -> None:
    """A scale of 1 gives the positive estimate, one of 0 the negative one."""
    x = recorded.tensors["in/x"]
    for name in recorded.cases:
        sides = recorded.side(name, "positive"), recorded.side(name, "negative")
        for key, sigma in recorded.evaluations(name):
            for cfg_scale, wanted in ((1.0, "cond"), (0.0, "uncond")):
                row = GuidedRow(x, sigma, *sides, cfg_scale, SD15)
                ours = guide(ToyDenoiser(), [row])[0].denoised
                theirs = recorded.tensors[f"case/{name}/{key}/{wanted}"]
                assert (ours - theirs).abs().max().item() <= TOLERANCE, (name, key, wanted)


@each_golden_set
def test_the_model_sees_the_same_crops(recorded: Recorded) -> None:
    x = recorded.tensors["in/x"]
    for name, case in recorded.cases.items():
        sides = recorded.side(name, "positive"), recorded.side(name, "negative")
        for key, sigma in recorded.evaluations(name):
            calls = plan_calls(x, sigma, sides, (0, 1), SD15.model_sampling)
            ours = sorted((c.side, *c.crop(x).shape[2:]) for c in calls)
            theirs = [
                (is_negative, *call["shape"][2:])
                for call in case["at"][key]["calls"]
                for is_negative in call["cond_or_uncond"]
            ]
            assert ours == sorted(theirs), (name, key)


@each_golden_set
def test_whole_runs(recorded: Recorded) -> None:
    """The recorded runs have a scale factor of 1, ours that of SD1.5: it is taken out again."""
    settings = recorded.json["run"]
    keys = [key for key in recorded.tensors.keys if key.startswith("run/eps/")]
    keys = [key for key in keys if key.split("/")[2] in recorded.cases]
    assert keys
    for key in keys:
        _, _, name, sampler, _ = key.split("/")
        sampling, steps = SD15.model_sampling, settings["steps"]
        node = KSampler(
            sampler=sampler,
            sigmas=ksampler_sigmas(sampling, settings["scheduler"], steps, 1.0, sampler),
            seed=settings["seed"],
            cfg=settings["cfg"],
            positive=recorded.side(name, "positive"),
            negative=recorded.side(name, "negative"),
            samples=torch.zeros(2, 4, 16, 24),
        )
        ours = finish(ToyDenoiser(), node) * SD15.scale_factor
        assert (ours - recorded.tensors[key]).abs().max().item() <= 1e-4, key


def entry(value: float = 0.5, **changes: Any) -> CondEntry:
    return CondEntry(cond=torch.full((1, 4, 8), value), pooled=None, **changes)


def plan(positive: list[CondEntry], negative: list[CondEntry], sigma: float) -> list[PlannedCall]:
    sides = Conditioning(entries=tuple(positive)), Conditioning(entries=tuple(negative))
    x = torch.zeros(2, 4, 16, 24)
    return plan_calls(x, sigma, sides, (0, 1), SD15.model_sampling)


def test_a_counterpart_has_the_text_of_the_smallest_area_around_it() -> None:
    small = ("latent", 4, 4, 2, 2)
    around = entry(0.2, area=("latent", 8, 8, 0, 0)), entry(0.3, area=("latent", 6, 6, 1, 1))
    aside = entry(0.4, area=("latent", 4, 4, 8, 8))
    negative = [entry(0.1), *around, aside]
    calls = plan([entry(area=small, controls=("c",))], negative, 1.0)
    (added,) = [c for c in calls if c.side and c.area == small[1:]]
    assert added.entry.cond[0, 0, 0].item() == pytest.approx(0.3)
    assert added.entry.controls == ("c",)


def test_an_area_without_any_text_around_it_has_no_counterpart() -> None:
    calls = plan([entry(area=("latent", 4, 4, 2, 2))], [entry(area=("latent", 4, 4, 8, 8))], 1.0)
    assert [(c.side, c.area) for c in calls] == [
        (1, (4, 4, 8, 8)),
        (0, (4, 4, 2, 2)),
    ]


def test_an_area_beside_the_picture_is_not_called_for() -> None:
    calls = plan([entry(), entry(area=("latent", 4, 4, 16, 0))], [entry()], 1.0)
    assert [(c.side, c.area) for c in calls] == [(1, None), (0, None)]


@pytest.mark.parametrize("percent", [0.1, 0.25, 0.5, 0.7])
def test_both_ends_of_a_range_count(percent: float) -> None:
    """A schedule's own sigma at the boundary may differ from it in the last digits."""
    edge = SD15.model_sampling.percent_to_sigma(percent)
    early, late = entry(end_percent=percent), entry(start_percent=percent)
    for sigma in (edge, edge * (1 + 1e-9), edge * (1 - 1e-9)):
        assert len(plan([early, late], [], sigma)) == 2
    assert len(plan([early, late], [], edge * 1.001)) == 1
    assert len(plan([early, late], [], edge * 0.999)) == 1


def test_residuals_go_to_the_calls_that_they_are_for() -> None:
    seen: list[tuple[float, object]] = []

    class Watched(ToyDenoiser):
        def execute_batch(self, calls):  # type: ignore[no-untyped-def]  # as the base class
            seen.extend((round(c["context"].mean().item(), 1), c.get("residuals")) for c in calls)
            return super().execute_batch(calls)

    def residuals(calls: Any) -> list[object | None]:
        return ["steers" if call.entry.controls else None for call in calls]

    sides = (
        Conditioning(entries=(entry(0.1), entry(0.2, controls=("a",)))),
        Conditioning(entries=(entry(-0.3),)),
    )
    guide(Watched(), [GuidedRow(torch.zeros(1, 4, 8, 8), 1.0, *sides, 7.0, SD15, residuals)])
    assert seen == [(-0.3, None), (0.1, None), (0.2, "steers")]
