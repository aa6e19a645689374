"""What every sampler's plan and update must satisfy, on plain floats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.goldens import each_golden_set, load_json
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.base import Course, Estimate, NoiseKind, SamplerState
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES, sampler
from nodeloom.graph_import.sampling.schedules import SCHEDULE_NAMES, ksampler_sigmas

SD = family("sd15").model_sampling
PLANNED = [name for name in SAMPLER_NAMES if not sampler(name).is_adaptive]
every_sampler = pytest.mark.parametrize("name", PLANNED)
# dpm_fast stops at the last sigma above 0, with its noise; UniPC at 0.001.
ENDS_ABOVE_ZERO = ("dpm_fast", "uni_pc", "uni_pc_bh2")
ends_at_zero = pytest.mark.parametrize(
    "name", [name for name in PLANNED if name not in ENDS_ABOVE_ZERO]
)


def no_noise(like: float, sigma_from: float, sigma_to: float) -> float:
    return 0.0


@every_sampler
@given(scheduler=st.sampled_from(SCHEDULE_NAMES), steps=st.integers(1, 60))
def test_plan_covers_each_step_once(name: str, scheduler: str, steps: int) -> None:
    sigmas = ksampler_sigmas(SD, scheduler, steps, 1.0, name)
    plan = sampler(name).plan(Course(sigmas, SD))
    assert [evaluation.index for evaluation in plan] == list(range(len(plan)))
    ends = [evaluation.step for evaluation in plan if evaluation.is_step_end]
    assert ends == list(range(len(sigmas) - 1))
    assert all(evaluation.sigma > 0.0 for evaluation in plan)


@every_sampler
def test_no_step_without_two_sigmas(name: str) -> None:
    assert sampler(name).plan(Course((), SD)) == ()
    assert sampler(name).plan(Course((14.6,), SD)) == ()


@ends_at_zero
@given(x=st.floats(-50, 50), target=st.floats(-3, 3), steps=st.integers(1, 30))
def test_a_model_that_knows_the_picture_is_followed(
    name: str, x: float, target: float, steps: int
) -> None:
    sigmas = ksampler_sigmas(SD, "karras", steps, 1.0, name)
    course = Course(sigmas, SD)
    state = SamplerState(x=x)
    for evaluation in sampler(name).plan(course):
        before = state.x
        state = sampler(name).update(state, Estimate(target, target), evaluation, course, no_noise)
        if evaluation.is_step_end:
            assert abs(state.x - target) <= abs(before - target) + 1e-9
            assert state.x_eval is None
    assert state.x == pytest.approx(target, abs=1e-9)


def test_heun_evaluates_twice_but_once_at_the_end() -> None:
    plan = sampler("heun").plan(Course((3.0, 2.0, 1.0, 0.0), SD))
    assert [evaluation.sigma for evaluation in plan] == [3.0, 2.0, 2.0, 1.0, 1.0]
    assert [evaluation.is_step_end for evaluation in plan] == [False, True, False, True, True]


def test_only_samplers_with_noise_draw_any_and_never_for_a_step_to_zero() -> None:
    course = Course((3.0, 2.0, 1.0, 0.0), SD)
    for name in PLANNED:
        draws: list[float] = []

        def draw(
            like: float, sigma_from: float, sigma_to: float, draws: list[float] = draws
        ) -> float:
            draws.append(sigma_to)
            return 1.0

        state = SamplerState(x=1.0)
        for evaluation in sampler(name).plan(course):
            state = sampler(name).update(state, Estimate(0.5, 0.5), evaluation, course, draw)
        assert all(sigma_to > 0.0 for sigma_to in draws), name
        if sampler(name).noise is NoiseKind.NONE:
            assert draws == [], name
        if name == "euler_ancestral":
            assert draws == [2.0, 1.0]


@each_golden_set
def test_names_are_comfyui_s_in_its_order(golden_set: str) -> None:
    theirs = load_json(golden_set, "schedules.json")["samplers"]
    assert theirs == list(SAMPLER_NAMES)
