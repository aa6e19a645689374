"""Hostile noise levels and options: refused before a model runs, or sampled to finite latents."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from kit.toy_runs import SAMPLINGS, guided, sampled
from nodeloom.graph_import.families import course_of
from nodeloom.graph_import.handles import Scalar
from nodeloom.graph_import.sampling.base import Course, Estimate, ModelCall, Sampler
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES, sampler, sampler_text
from nodeloom.graph_import.sampling.samplers.dpm_adaptive import DpmAdaptive
from nodeloom.graph_import.sampling.schedules import SCHEDULE_NAMES, ksampler_sigmas
from nodeloom.graph_import.sampling.trial import try_sampler

# Not dpm_adaptive, which has tests of its own, nor lcm_upscale, which asks more of latents.
PLANNED = tuple(name for name in SAMPLER_NAMES if not sampler(name).is_adaptive)
NAMES = (*PLANNED, "euler_past_guidance")
FALLING = (0.99, 0.8, 0.5, 0.2, 0.0)
LISTS = {
    "one step": (1.0, 0.0),
    "one step that leaves noise": (0.9, 0.5),
    "repeated": (0.9, 0.9, 0.5, 0.5, 0.0),
    "one alone": (0.5, 0.5, 0.5),
    "nearly one alone": (0.5000004, 0.5000001, 0.49999999, 0.0),
    "tiny": (1e-6, 5e-7, 0.0),
    "rising": (0.2, 0.5, 0.9),
    "rising to 1": (0.1, 0.5, 1.0),
    "1 in the middle": (0.9, 1.0, 1.0, 0.5, 0.0),
    "above 1": (14.6, 7.0, 1.0, 0.5, 0.0),
    "flipped": (0.0001, 0.3, 0.9, 14.0),
    "far": (20000.0, 3.0, 1e-30, 0.0),
    "beyond float32": (1e40, 1.0, 0.0),
    "falling": FALLING,
}
FRESH: dict[str, Scalar] = {"eta": 100.0, "s_noise": 100.0}
EXTREMES: tuple[tuple[str, dict[str, Scalar]], ...] = (
    *((n, FRESH) for n in ("euler_ancestral", "dpmpp_2s_ancestral", "dpmpp_sde", "seeds_2")),
    *((n, FRESH) for n in ("dpmpp_2m_sde", "dpmpp_3m_sde", "er_sde")),
    ("er_sde", {"solver_type": "Reverse-time SDE", "eta": 100.0}),
    ("dpmpp_sde", {"r": 0.0}),
    ("dpmpp_sde", {"r": 100.0}),
    ("lms", {"order": 100}),
    ("sa_solver", {"eta": 10.0, "predictor_order": 6, "corrector_order": 6}),
)


def is_refused(text: str, course: Course) -> bool:
    try:
        try_sampler(sampler(text), course)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in NAMES), *EXTREMES])
def test_what_is_not_refused_gives_finite_latents(
    kind: str, name: str, options: dict[str, Scalar]
) -> None:
    text = sampler_text(name, **options)
    for what, sigmas in LISTS.items():
        course = Course(sigmas, SAMPLINGS[kind])
        if not is_refused(text, course):
            latents = sampled(text, course, torch.zeros(1, 4, 2, 2), seed=1, cfg=2.0)
            assert latents.isfinite().all(), what


@pytest.mark.parametrize("name", NAMES)
def test_the_levels_of_schedules_are_not_refused(name: str) -> None:
    for family in ("sd15", "sd3"):
        for schedule in SCHEDULE_NAMES:
            for steps, denoise in ((2, 1.0), (20, 1.0), (1, 0.5)):
                sampling = course_of(family, "", ()).sampling
                sigmas = ksampler_sigmas(sampling, schedule, steps, denoise, name)
                assert not is_refused(name, Course(sigmas, sampling)), (family, schedule, steps)
        assert not is_refused(name, course_of(family, "", FALLING))
        assert not is_refused(name, course_of(family, "", ()))


def test_a_power_that_overflows_is_refused() -> None:
    text = sampler_text("er_sde", solver_type="Reverse-time SDE", eta=100.0)
    assert is_refused(text, course_of("sd15", "", (20000.0, 1.0, 0.0)))


def test_options_that_are_no_numbers_are_refused() -> None:
    for option in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="eta is"):
            sampler_text("euler_ancestral", eta=option)


@pytest.mark.parametrize("name", [*NAMES, "dpm_adaptive", "lcm_upscale"])
def test_a_text_of_options_is_read_back_as_they_were(name: str) -> None:
    usual = sampler(name)
    changed = {
        field: value + 1 if isinstance(value, int) else value + 0.123456789
        for field in usual.__struct_fields__
        if isinstance(value := getattr(usual, field), int | float) and not isinstance(value, bool)
    }
    text = sampler_text(name, **changed)
    again = sampler(text)
    assert {field: getattr(again, field) for field in changed} == changed
    assert sampler_text(name) == name


def no_noise(like: torch.Tensor, sigma_from: float, sigma_to: float) -> torch.Tensor:
    return torch.zeros_like(like)


def outcome(named: Sampler, estimated: Callable[[ModelCall], Estimate], limit: int) -> str:
    """How `limit` calls of an adaptive sampler end."""
    course = Course((14.0, 1.0, 0.1, 0.0), SAMPLINGS["eps"])
    requests = named.run(torch.full((1, 4, 2, 2), 14.0), course, no_noise)
    try:
        asked = next(requests)
        for _ in range(limit):
            asked = requests.send(estimated(asked))
    except StopIteration as end:
        return "finite" if end.value.isfinite().all() else "broken"
    except ArithmeticError as problem:
        return str(problem)
    return "limit"


def test_adaptive_steps_give_up_on_estimates_that_are_not_finite() -> None:
    broken = Estimate(torch.full((1, 4, 2, 2), math.nan))
    assert "no length" in outcome(DpmAdaptive(), lambda asked: broken, 200)


@pytest.mark.parametrize(
    "options",
    [
        {"rtol": 0.0, "atol": 0.0},
        {"rtol": 0.0, "atol": 0.0, "pcoeff": 1.0},
        {"h_init": 0.0},
        {"eta": 100.0, "s_noise": 100.0},
        {"eta": 1e-9, "order": 2},
        {"pcoeff": 100.0, "icoeff": 100.0, "dcoeff": 100.0, "rtol": 1e-30, "atol": 1e-30},
    ],
)
def test_adaptive_steps_fail_in_words_alone(options: dict[str, Scalar]) -> None:
    """How many calls there may be is the op's to say."""
    named = sampler(sampler_text("dpm_adaptive", **options))
    end = outcome(named, lambda asked: guided(asked.x, asked.sigma, 2.0), 500)
    assert end in ("finite", "limit") or "no length" in end


def test_a_refusal_names_the_noise_levels() -> None:
    with pytest.raises(ValueError, match=r"dpmpp_2m_sde .* from 0.5 to 1 of"):
        try_sampler(sampler("dpmpp_2m_sde"), Course((0.9, 0.5, 1.0), SAMPLINGS["flow"]))
