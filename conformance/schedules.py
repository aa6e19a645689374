"""schedules.json: sigma schedules on every model sampling, and what nodes make of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from nodeloom.graph_import.sampling.model_sampling import ModelSampling
from nodeloom.graph_import.sampling.node_schedules import (
    beta_sampling_sigmas,
    percent_sigma,
    turbo_sigmas,
)
from nodeloom.graph_import.sampling.schedules import basic_sigmas, ksampler_sigmas, step_window

from .case import Case, Outcome, close, equal
from .model_samplings import recorded_sampling

TOLERANCE: Final = 1e-5  # of the larger of 1 and the value
ZERO_SNR_TOLERANCE: Final = 1e-4
PLAIN_SAMPLER: Final = "euler"
DISCARDING_SAMPLER: Final = "dpm_2"


def cases(goldens: Path) -> Iterator[Case]:
    """A case for each list of sigmas and each number."""
    recorded = json.loads((goldens / "schedules.json").read_text("utf-8"))
    samplings = {
        name: partial(recorded_sampling, name, record)
        for name, record in recorded["model_samplings"].items()
    }
    yield from _grids(recorded, samplings)
    yield from _windows(recorded, samplings)
    yield from _nodes(recorded, samplings)
    for name, record in recorded["model_samplings"].items():
        for percent, sigma in record["percent_to_sigma"].items():
            run = partial(_percent, samplings[name], float(percent), sigma, _tolerance(name))
            yield Case(f"schedules/{name}/percent/{percent}", run)


Samplings = dict[str, Callable[[], ModelSampling]]


def _grids(recorded: Any, samplings: Samplings) -> Iterator[Case]:
    tables: Sequence[tuple[str, Callable[..., Sequence[float]]]] = (
        ("sigmas", partial(ksampler_sigmas, sampler=PLAIN_SAMPLER)),
        ("sigmas_discard", partial(ksampler_sigmas, sampler=DISCARDING_SAMPLER)),
        ("basic_scheduler", basic_sigmas),
    )
    for table, function in tables:
        for name, by_scheduler in recorded[table].items():
            for scheduler, grid in by_scheduler.items():
                for key, sigmas in grid.items():
                    steps, denoise = key.split("@")
                    make = partial(_grid, function, samplings[name], scheduler, steps, denoise)
                    case = f"schedules/{table}/{name}/{scheduler}/{key}"
                    yield Case(case, partial(_compared, make, sigmas, _tolerance(name)))
    for index, case in enumerate(recorded["denoise_corner"]):
        make = partial(
            ksampler_sigmas,
            samplings["eps_sd"](),
            case["scheduler"],
            case["steps"],
            case["denoise"],
            case["sampler"],
        )
        run = partial(_compared, make, case["sigmas"], TOLERANCE)
        yield Case(f"schedules/denoise_corner/{index}", run)


def _grid(
    function: Callable[..., Sequence[float]],
    sampling: Callable[[], ModelSampling],
    scheduler: str,
    steps: str,
    denoise: str,
) -> Sequence[float]:
    return function(sampling(), scheduler, int(steps), float(denoise))


def _windows(recorded: Any, samplings: Samplings) -> Iterator[Case]:
    for index, case in enumerate(recorded["ksampler_advanced"]):
        wanted = [] if case["returns_input_latent"] else case["sigmas"]
        make = partial(_window, samplings[case["model_sampling"]], case)
        run = partial(_compared, make, wanted, _tolerance(case["model_sampling"]))
        yield Case(f"schedules/ksampler_advanced/{index}", run)


def _window(sampling: Callable[[], ModelSampling], case: Any) -> Sequence[float]:
    whole = ksampler_sigmas(sampling(), case["scheduler"], case["steps"], 1.0, case["sampler"])
    return step_window(
        whole,
        start=case["start_at_step"],
        end=case["end_at_step"],
        keeps_noise=case["return_with_leftover_noise"] == "enable",
    )


def _nodes(recorded: Any, samplings: Samplings) -> Iterator[Case]:
    functions: dict[str, Callable[..., Sequence[float]]] = {
        "SDTurboScheduler": turbo_sigmas,
        "BetaSamplingScheduler": beta_sampling_sigmas,
    }
    for index, case in enumerate(recorded["node_schedulers"]):
        make = partial(_node, functions[case["node"]], samplings[case["model_sampling"]], case)
        run = partial(_compared, make, case["sigmas"], _tolerance(case["model_sampling"]))
        yield Case(f"schedules/{case['node']}/{index}", run)
    for index, case in enumerate(recorded["sampling_percent_to_sigma"]):
        make = partial(_percent_node, samplings[case["model_sampling"]], case)
        run = partial(_compared, make, [case["sigma"]], TOLERANCE)
        yield Case(f"schedules/SamplingPercentToSigma/{index}", run)


def _node(
    function: Callable[..., Sequence[float]], sampling: Callable[[], ModelSampling], case: Any
) -> Sequence[float]:
    return function(sampling(), **case["inputs"])


def _percent_node(sampling: Callable[[], ModelSampling], case: Any) -> Sequence[float]:
    is_actual = case["return_actual_sigma"]
    return [percent_sigma(sampling(), case["sampling_percent"], is_actual=is_actual)]


def _percent(
    sampling: Callable[[], ModelSampling], percent: float, sigma: float, tolerance: float
) -> Outcome:
    return _compared(lambda: [sampling().percent_to_sigma(percent)], [sigma], tolerance)


def _tolerance(name: str) -> float:
    return ZERO_SNR_TOLERANCE if "zsnr" in name else TOLERANCE


def _compared(
    make: Callable[[], Sequence[float]], wanted: Sequence[float | str], tolerance: float
) -> Outcome:
    ours = make()
    if len(ours) != len(wanted):
        return equal(len(ours), len(wanted))
    theirs = torch.tensor([float(sigma) for sigma in wanted], dtype=torch.float64)
    scale = theirs.abs().clamp(min=1.0)
    return close(torch.tensor(ours, dtype=torch.float64) / scale, theirs / scale, tolerance)
