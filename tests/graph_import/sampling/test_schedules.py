"""Sigma schedules and the sigma table against ComfyUI's numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.goldens import Tensors, each_golden_set, load_json
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.beta_quantile import symmetric_beta_quantile
from nodeloom.graph_import.sampling.schedules import (
    DISCARD_PENULTIMATE,
    MAX_SCHEDULE_STEPS,
    SCHEDULE_NAMES,
    ksampler_sigmas,
    step_window,
)

SD = family("sd15").model_sampling


def assert_sigmas(got: tuple[float, ...], wanted: list[float], what: object) -> None:
    assert len(got) == len(wanted), what
    for ours, theirs in zip(got, wanted, strict=True):
        assert abs(ours - theirs) <= 1e-5 * max(1.0, theirs), (what, got, wanted)


@pytest.fixture
def schedules(golden_set: str) -> Any:
    return load_json(golden_set, "schedules.json")


@each_golden_set
@pytest.mark.parametrize("scheduler", SCHEDULE_NAMES)
@pytest.mark.parametrize(("table", "sampler"), [("sigmas", "euler"), ("sigmas_discard", "dpm_2")])
def test_schedule(schedules: Any, scheduler: str, table: str, sampler: str) -> None:
    for grid, wanted in schedules[table]["eps_sd"][scheduler].items():
        steps, denoise = grid.split("@")
        if "NaN" not in wanted:  # kl_optimal with one step
            got = ksampler_sigmas(SD, scheduler, int(steps), float(denoise), sampler)
            assert_sigmas(got, wanted, grid)


@each_golden_set
def test_odd_denoise_values(schedules: Any) -> None:
    for case in schedules["denoise_corner"]:
        got = ksampler_sigmas(
            SD, case["scheduler"], case["steps"], case["denoise"], case["sampler"]
        )
        assert_sigmas(got, case["sigmas"], case)


@each_golden_set
def test_names_are_comfyui_s_in_its_order(schedules: Any) -> None:
    assert list(SCHEDULE_NAMES) == schedules["schedulers"]
    assert set(schedules["discard_penultimate_sigma_samplers"]) == DISCARD_PENULTIMATE


@each_golden_set
def test_windows_of_a_schedule(schedules: Any) -> None:
    cases = [c for c in schedules["ksampler_advanced"] if c["model_sampling"] == "eps_sd"]
    assert cases
    for case in cases:
        whole = ksampler_sigmas(SD, case["scheduler"], case["steps"], 1.0, case["sampler"])
        got = step_window(
            whole,
            start=case["start_at_step"],
            end=case["end_at_step"],
            keeps_noise=case["return_with_leftover_noise"] == "enable",
        )
        wanted = [] if case["returns_input_latent"] else case["sigmas"]
        assert_sigmas(got, wanted, case)


@each_golden_set
def test_percent_to_sigma(schedules: Any) -> None:
    for percent, wanted in schedules["model_samplings"]["eps_sd"]["percent_to_sigma"].items():
        assert SD.percent_to_sigma(float(percent)) == pytest.approx(wanted, rel=1e-5)


@each_golden_set
def test_sigma_table_and_its_functions(golden_set: str) -> None:
    kept = Tensors(golden_set, "model_sampling.safetensors")
    assert SD.sigmas == pytest.approx(kept["eps_sd/sigmas"].tolist(), rel=1e-5)
    sigmas = kept["eps_sd/sigma"].tolist()
    assert [SD.timestep(sigma) for sigma in sigmas] == kept["eps_sd/timestep"].tolist()
    fractional = kept["eps_sd/sigma_of_timestep_in"].tolist()
    wanted = kept["eps_sd/sigma_of_timestep"].tolist()
    assert [SD.sigma_at(timestep) for timestep in fractional] == pytest.approx(wanted, rel=1e-5)
    x, noise_pred, latents = (kept[f"in/{name}"] for name in ("x", "model_output", "latent"))
    for row, sigma in enumerate(sigmas):
        for name, got in {
            "calculate_input": x[row] * SD.input_scale(sigma),
            "calculate_denoised": SD.denoised(x[row], noise_pred[row], sigma),
        }.items():
            wanted_row = kept[f"eps_sd/{name}"][row]
            limit = 1e-4 * max(1.0, wanted_row.abs().max().item())
            assert (got - wanted_row).abs().max().item() <= limit, (name, sigma)
        is_max = math.isclose(sigma, SD.sigma_max, rel_tol=1e-5)
        noised = kept[f"eps_sd/noise_scaling_max{int(is_max)}"][row]
        assert (SD.noised(latents[row], x[row], sigma) - noised).abs().max().item() <= 1e-4 * sigma


def test_timestep_is_the_nearest_in_log_sigma() -> None:
    for timestep in (0, 1, 500, 998, 999):
        assert SD.timestep(SD.sigmas[timestep] * 1.0001) == timestep
        assert SD.timestep(SD.sigmas[timestep] * 0.9999) == timestep
    assert SD.timestep(1e-6) == 0
    assert SD.timestep(1e6) == 999


@settings(deadline=None)  # "beta" of a few thousand steps takes a quarter of a second
@given(
    scheduler=st.sampled_from(SCHEDULE_NAMES),
    steps=st.integers(1, 200),
    denoise=st.floats(0.05, 1.0),
    sampler=st.sampled_from(["euler", "dpm_2"]),
)
def test_sigmas_fall_to_zero(scheduler: str, steps: int, denoise: float, sampler: str) -> None:
    sigmas = ksampler_sigmas(SD, scheduler, steps, denoise, sampler)
    assert sigmas[-1] == 0.0
    assert list(sigmas) == sorted(sigmas, reverse=True)
    assert 0.0 < sigmas[0] <= SD.sigma_max * 1.001


@pytest.mark.parametrize(
    ("steps", "denoise"), [(0, 1.0), (-3, 1.0), (MAX_SCHEDULE_STEPS + 1, 1.0), (20, 1e-12)]
)
def test_steps_beyond_reason_are_refused(steps: int, denoise: float) -> None:
    with pytest.raises(ValueError, match="steps"):
        ksampler_sigmas(SD, "normal", steps, denoise, "euler")


@pytest.mark.parametrize(
    ("probability", "quantile"),  # scipy 1.17.1, stats.beta(0.6, 0.6).ppf
    [
        (1e-9, 1.85588246249141e-15),
        (1e-4, 3.998377158137721e-07),
        (0.01, 0.0008612388215429059),
        (0.1, 0.03958440558878085),
        (0.25, 0.17568037865269498),
        (0.5, 0.5),
        (0.77, 0.8461624142323502),
        (0.9, 0.9604155944112192),
        (0.999, 0.9999814412614826),
        (1 - 1e-9, 0.9999999999999981),
    ],
)
def test_beta_quantile_agrees_with_scipy(probability: float, quantile: float) -> None:
    assert symmetric_beta_quantile(probability, 0.6) == pytest.approx(quantile, abs=1e-12)
