"""Several entries a side, on areas, under masks and in parts of the sampling, as ComfyUI has it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kit.goldens import each_golden_set, golden_folder
from kit.toy_denoiser import ToyDenoiser
from nodeloom.graph_import.families import family
from nodeloom.runtime.sampling.areas import Area
from nodeloom.runtime.sampling.calls import PlannedCall, plan_calls
from nodeloom.runtime.sampling.guidance import GuidedRow, guide
from nodeloom.runtime.values import CondEntry, Conditioning

from conformance.conditioning import cases

SD15 = family("sd15")


@each_golden_set
def test_every_recorded_evaluation_and_run(golden_set: str) -> None:
    """Estimates of both sides, crops, areas and times; and KSamplers."""
    outcomes = {case.name: case.run() for case in cases(golden_folder(golden_set))}
    assert {name: o for name, o in outcomes.items() if not o.passes} == {}
    assert {name.split("/")[1] for name in outcomes} == {"case", "run"}
    assert len(outcomes) >= 35


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
    (added,) = [c for c in calls if c.side and c.area == Area((4, 4), (2, 2))]
    assert added.entry.cond[0, 0, 0].item() == pytest.approx(0.3)
    assert added.entry.controls == ("c",)


def test_an_area_without_any_text_around_it_has_no_counterpart() -> None:
    calls = plan([entry(area=("latent", 4, 4, 2, 2))], [entry(area=("latent", 4, 4, 8, 8))], 1.0)
    assert [(c.side, c.area) for c in calls] == [
        (1, Area((4, 4), (8, 8))),
        (0, Area((4, 4), (2, 2))),
    ]


def test_an_area_beside_the_picture_is_not_called_for() -> None:
    calls = plan([entry(), entry(area=("latent", 4, 4, 16, 0))], [entry()], 1.0)
    assert [(c.side, c.area) for c in calls] == [(1, None), (0, None)]


def test_an_area_that_begins_before_the_picture_is_what_of_it_is_on_the_picture() -> None:
    """A start that came over an edge may be any number."""
    outside, across = ("latent", 4, 4, -9, 0), ("latent", 4, 4, -1, -2)
    calls = plan([entry(), entry(area=outside), entry(area=across)], [], 1.0)
    assert [(c.side, c.area) for c in calls] == [(0, None), (0, Area((3, 2), (0, 0)))]


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


def weights(calls: list[PlannedCall]) -> list[Any]:
    return [c.multiplier if isinstance(c.multiplier, float) else c.multiplier[0, 0] for c in calls]


def test_a_default_counts_where_the_weights_of_the_others_leave_a_gap() -> None:
    left = torch.zeros(1, 16, 24)
    left[..., :6] = 0.75
    by_default = entry(0.2, is_default=True, strength=2.0)
    calls = plan([by_default, entry(0.1, mask=left)], [entry()], 1.0)
    assert [call.entry.is_default for call in calls] == [False, False, True]
    share = weights(calls)[2]
    assert share[:, :6].unique().tolist() == [0.5]
    assert share[:, 6:].unique().tolist() == [2.0]


def test_a_default_without_a_gap_is_not_called_for() -> None:
    first_half = entry(0.1, end_percent=0.5)
    by_default = entry(0.2, is_default=True)
    edge = SD15.model_sampling.percent_to_sigma(0.5)
    early = plan([first_half, by_default], [], edge * 1.1)
    assert [call.entry for call in early] == [first_half]
    late = plan([first_half, by_default], [], edge * 0.9)
    assert [call.entry for call in late] == [by_default]
    assert bool((weights(late)[0] == 1.0).all())


def test_two_defaults_share_a_gap() -> None:
    defaults = [entry(value, is_default=True) for value in (0.1, 0.2)]
    calls = plan(defaults, [], 1.0)
    assert [bool((weight == 1.0).all()) for weight in weights(calls)] == [True, True]


def test_an_area_with_frames_is_one_of_a_picture_on_latents_without_frames() -> None:
    area = ("percentage", 0.5, 0.25, 0.5, 0.5, 0.0, 0.5)
    sides = Conditioning(entries=(entry(area=area),)), Conditioning(entries=())
    (on_picture,) = plan_calls(torch.zeros(1, 4, 16, 24), 1.0, sides, (0,), SD15.model_sampling)
    (on_video,) = plan_calls(torch.zeros(1, 4, 4, 16, 24), 1.0, sides, (0,), SD15.model_sampling)
    assert on_picture.area == Area((4, 12), (0, 12))
    assert on_video.area == Area((2, 4, 12), (2, 0, 12))


def test_a_mask_is_the_same_on_all_frames() -> None:
    mask = torch.zeros(1, 8, 8)
    mask[..., :4] = 1.0
    sides = Conditioning(entries=(entry(mask=mask, is_mask_bounds=True),)), Conditioning(entries=())
    (call,) = plan_calls(torch.zeros(2, 4, 3, 8, 8), 1.0, sides, (0,), SD15.model_sampling)
    assert call.area == Area((3, 8, 8), (0, 0, 0))
    assert isinstance(call.multiplier, torch.Tensor)
    assert call.multiplier.shape == (1, 1, 3, 8, 8)
    assert call.multiplier[0, 0].amax(dim=(1, 2)).tolist() == [1.0, 1.0, 1.0]
