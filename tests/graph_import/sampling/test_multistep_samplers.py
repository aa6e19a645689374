"""The arithmetic of the samplers that look back, on plain floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.base import Course, Estimate, Sampler
from nodeloom.graph_import.sampling.samplers import sampler, sampler_text
from nodeloom.graph_import.sampling.samplers.exponential import moment_weights, moments
from nodeloom.graph_import.sampling.samplers.lagrange import distinct, lagrange_weights

SD = family("sd15").model_sampling


POINTS, WEIGHTS = np.polynomial.legendre.leggauss(40)


def integral(function: Callable[[float], float], start: float, end: float) -> float:
    """Of a smooth function, by Gauss's rule."""
    middle, half = (start + end) / 2.0, (end - start) / 2.0
    return sum(half * w * function(middle + half * p) for p, w in zip(POINTS, WEIGHTS, strict=True))


def noise_of_one(like: float, sigma_from: float, sigma_to: float) -> float:
    return 1.0


def run(chosen: Sampler, sigmas: tuple[float, ...], x: float) -> float:
    """Sample with a denoiser that says sin(log sigma), at first from sin(log sigma)."""
    course = Course(sigmas, SD)
    state = chosen.begin(x, course)
    for evaluation in chosen.plan(course):
        estimate = Estimate(math.sin(math.log(evaluation.sigma)))
        state = chosen.update(state, estimate, evaluation, course, noise_of_one)
    return float(state.x)


def exact(sigmas: tuple[float, ...], x: float) -> float:
    """The ODE's solution; with t = -log sigma dx/dt = m - x."""
    start, end = sigmas[0], sigmas[-1]
    mean = integral(lambda t: math.sin(t) * math.exp(-t), math.log(start), math.log(end))
    return end / start * x - end * mean


def even(count: int) -> tuple[float, ...]:
    """Sigmas from 4 to 1, evenly over their logarithm."""
    return tuple(4.0 ** (1.0 - k / count) for k in range(count + 1))


@pytest.mark.parametrize(
    "text",
    [
        "lms",
        "deis",
        "uni_pc",
        "uni_pc_bh2",
        sampler_text("sa_solver", eta=0.0, corrector_order=0),
        sampler_text("sa_solver", eta=0.0),
        sampler_text("sa_solver_pece", eta=0.0),
    ],
)
def test_the_error_is_of_second_order_as_the_first_step_is_of_the_first(text: str) -> None:
    errors = [abs(run(sampler(text), even(n), 1.5) - exact(even(n), 1.5)) for n in (40, 80)]
    assert errors[1] < 2e-4
    assert errors[0] / errors[1] > 3.5


@given(z=st.floats(0.0, 30.0), count=st.integers(1, 6))
def test_moments_are_the_integrals(z: float, count: int) -> None:
    for power, moment in enumerate(moments(z, count)):
        wanted = integral(lambda v, p=power: z * math.exp(-z * (1.0 - v)) * v**p, 0.0, 1.0)
        assert moment == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@given(
    widths=st.lists(st.floats(0.1, 2.0), min_size=2, max_size=5),
    rate=st.floats(1.0, 5.0),
    degree=st.integers(0, 3),
)
def test_weights_integrate_polynomials_exactly(
    widths: list[float], rate: float, degree: int
) -> None:
    """As many values as there are weights determine a polynomial of one degree less."""
    times = [sum(widths[:k]) for k in range(len(widths) + 1)]
    *past, start, end = times
    nodes = [start, *reversed(past)]
    degree = min(degree, len(nodes) - 1)
    weights = moment_weights(nodes, start, end, moments(rate * (end - start), len(nodes)))
    ours = sum(weight * node**degree for weight, node in zip(weights, nodes, strict=True))
    wanted = integral(lambda t: rate * math.exp(rate * (t - end)) * t**degree, start, end)
    assert ours == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    plain = lagrange_weights(nodes, start, end)
    ours = sum(weight * node**degree for weight, node in zip(plain, nodes, strict=True))
    assert ours == pytest.approx(integral(lambda t: t**degree, start, end), rel=1e-6, abs=1e-6)


def test_nodes_end_where_one_was_there_before() -> None:
    assert distinct([3.0, 2.0, 2.0, 1.0]) == (3.0, 2.0)
    assert distinct([]) == ()


def test_recorded_weights_are_exact_up_to_the_second_order_alone() -> None:
    course = Course((8.0, 5.0, 3.0, 2.0, 1.2), SD)
    exact_weights, ours = sampler("lms"), sampler("ipndm_v")
    states = [exact_weights.begin(8.0, course), ours.begin(8.0, course)]
    for evaluation in ours.plan(course):  # of dx / dsigma = sigma^2
        # dx/dsigma = 1 + sigma
        states = [
            chosen.update(
                state,
                Estimate(state.x - evaluation.sigma**3),
                evaluation,
                course,
                noise_of_one,
            )
            for chosen, state in zip((exact_weights, ours), states, strict=True)
        ]
        difference = abs(states[0].x - states[1].x)
        assert (difference > 1e-3) == (evaluation.step >= 2)


def test_unipc_stops_above_zero_and_a_single_step_is_none() -> None:
    for name in ("uni_pc", "uni_pc_bh2"):
        chosen = sampler(name)
        assert chosen.last_sigma(Course((4.0, 2.0, 0.0), SD)) == 0.001
        assert chosen.last_sigma(Course((4.0, 2.0), SD)) == 2.0
        assert run(chosen, (3.0, 0.0), 2.0) == pytest.approx(2.0 / math.sqrt(10.0), rel=1e-6)
        assert run(chosen, (3.0, 1.0), 2.0) == pytest.approx(2.0 * math.sqrt(0.2))


def test_noise_is_added_between_the_two_sigmas_alone() -> None:
    draws: list[tuple[float, float]] = []

    def draw(like: float, sigma_from: float, sigma_to: float) -> float:
        draws.append((sigma_from, sigma_to))
        return 0.0

    course = Course((8.0, 6.0, 4.0, 2.0, 1.0, 0.0), SD)
    text = sampler_text("sa_solver", sde_start_sigma=6.0, sde_end_sigma=2.0)
    state = sampler(text).begin(1.0, course)
    for evaluation in sampler(text).plan(course):
        state = sampler(text).update(state, Estimate(0.5), evaluation, course, draw)
    assert draws == [(8.0, 6.0), (6.0, 4.0), (4.0, 2.0)]


def test_pece_evaluates_each_corrected_state_and_only_those() -> None:
    sigmas = (8.0, 4.0, 2.0, 0.0)
    twice = sampler("sa_solver_pece").plan(Course(sigmas, SD))
    assert [evaluation.sigma for evaluation in twice] == [8.0, 4.0, 4.0, 2.0, 2.0]
    uncorrected = sampler(sampler_text("sa_solver_pece", corrector_order=0))
    assert len(uncorrected.plan(Course(sigmas, SD))) == 3


@pytest.mark.parametrize("eta", [0.0, 1.0, 10.0])
def test_the_noise_that_is_added_is_that_which_was_removed(eta: float) -> None:
    """With x = sigma z and a denoiser that says 0 the deviation stays sigma, whatever tau is."""
    chosen = sampler(sampler_text("sa_solver", eta=eta, sde_start_sigma=9.0, sde_end_sigma=0.1))
    for sigma, following in pairwise((8.0, 5.0, 3.0)):
        course = Course((sigma, following), SD)
        (evaluation,) = chosen.plan(course)
        kept = chosen.update(
            chosen.begin(sigma, course), Estimate(0.0), evaluation, course, lambda *_: 0.0
        ).x
        added = chosen.update(
            chosen.begin(0.0, course), Estimate(0.0), evaluation, course, noise_of_one
        ).x
        assert math.hypot(kept, added) == pytest.approx(following)
