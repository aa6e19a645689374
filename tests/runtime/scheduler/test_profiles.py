"""Guesses first, measurements then."""

from __future__ import annotations

import pytest
from kit.graphs import chain, model
from kit.plant import Plant, fail
from nodeloom.runtime.scheduler.estimates import Estimate
from nodeloom.runtime.scheduler.profiles import OpenWork, Profiles


def test_loading_is_guessed_from_the_size_of_the_file() -> None:
    key = model("m", size_bytes=2 * 10**9).key
    assert Profiles().load(key).seconds_s == pytest.approx(2.05)


def test_the_first_measurement_replaces_the_guess_and_later_ones_move_it() -> None:
    estimate = Estimate(100.0)
    estimate.learn(1.0)
    assert estimate.seconds_s == 1.0
    estimate.learn(2.0)
    assert estimate.seconds_s == pytest.approx(1.3)


def test_calls_are_profiled_by_op_and_model() -> None:
    profiles = Profiles()
    key, other = model("m").key, model("n").key
    assert profiles.call("denoise", key) is profiles.call("denoise", key)
    assert profiles.call("denoise", key) is not profiles.call("denoise", other)
    assert profiles.call("denoise", key) is not profiles.call("vae_decode", key)


def test_an_evaluation_under_hooks_is_guessed_as_one_without() -> None:
    profiles, key = Profiles(), model("m").key
    guesses = [profiles.call(op, key).seconds_s for op in ("denoise", "denoise_hooked")]
    assert guesses[0] == guesses[1] > profiles.call("set_noise_mask", None).seconds_s


def test_a_report_teaches_what_a_call_takes_without_the_loading(plant: Plant) -> None:
    plant.arrive("a", chain(1, model("m")))
    plant.arrive("b", chain(1, model("m")))
    plant.join("gpu0")
    plant.report("gpu0", run_s=0.5, load_s=3.0)
    profiles = plant.scheduler.profiles
    assert profiles.call("denoise", model("m").key).seconds_s == pytest.approx(0.25)
    assert profiles.load(model("m").key).seconds_s == pytest.approx(3.0)


def test_a_failed_call_teaches_nothing(plant: Plant) -> None:
    plant.join("gpu0")
    plant.arrive("a", chain(1, model("m")))
    plant.report("gpu0", run_s=0.001, result=fail)
    assert not plant.scheduler.profiles.call("denoise", model("m").key).is_measured


def test_open_work_is_the_sum_of_the_calls_that_are_left() -> None:
    work = OpenWork()
    fast, slow = Estimate(0.1), Estimate(2.0)
    for profile in (fast, slow, slow):
        work.add(profile)
    work.remove(slow)
    assert work.num_calls == 2
    assert work.seconds_s == pytest.approx(2.1)
