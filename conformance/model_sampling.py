"""model_sampling.safetensors: sigma tables, and what is made of sigmas, latents and outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import torch
from nodeloom.graph_import.sampling.model_sampling import (
    ModelSampling,
    model_sampling,
    sampling_text,
)
from safetensors.torch import load_file

from .case import Case, Outcome, close, equal, worst
from .model_samplings import recorded_sampling

RELATIVE: Final = 1e-4  # of the larger of 1 and the value

Tensors = Mapping[str, torch.Tensor]
Row = Callable[[ModelSampling, float, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def cases(goldens: Path) -> Iterator[Case]:
    """A case for each model sampling and function of it."""
    records = json.loads((goldens / "schedules.json").read_text("utf-8"))["model_samplings"]
    tensors = load_file(goldens / "model_sampling.safetensors")
    for name, record in records.items():
        ours = partial(_ours, name, record)
        for part, run in _PARTS.items():
            if f"{name}/{part}" in tensors:
                yield Case(f"model_sampling/{name}/{part}", partial(run, ours, tensors, name, part))
        yield Case(f"model_sampling/{name}/text", partial(_text, ours))


def _ours(name: str, record: object) -> ModelSampling:
    return recorded_sampling(name, record)


def _text(ours: Callable[[], ModelSampling]) -> Outcome:
    return equal(model_sampling(sampling_text(ours())), ours())


def _relative(ours: torch.Tensor, recorded: torch.Tensor) -> Outcome:
    scale = recorded.abs().clamp(min=1.0)
    return close(ours.double() / scale, recorded.double() / scale, RELATIVE)


def _numbers(
    function: Callable[[ModelSampling, float], float],
    source: str,
    ours: Callable[[], ModelSampling],
    tensors: Tensors,
    name: str,
    part: str,
) -> Outcome:
    given = tensors[f"{name}/{source}"].double().flatten().tolist()
    got = torch.tensor([function(ours(), number) for number in given], dtype=torch.float64)
    return _relative(got, tensors[f"{name}/{part}"].flatten())


def _table(ours: Callable[[], ModelSampling], tensors: Tensors, name: str, part: str) -> Outcome:
    return _relative(torch.tensor(ours().sigmas), tensors[f"{name}/{part}"])


def _rows(
    function: Row,
    ours: Callable[[], ModelSampling],
    tensors: Tensors,
    name: str,
    part: str,
) -> Outcome:
    sampling, recorded = ours(), tensors[f"{name}/{part}"]
    x, output, latent = (tensors[f"in/{item}"] for item in ("x", "model_output", "latent"))
    sigmas = tensors[f"{name}/sigma"].double().flatten().tolist()
    return worst(
        [
            _relative(function(sampling, sigma, x[row], output[row], latent[row]), recorded[row])
            for row, sigma in enumerate(sigmas)
        ]
    )


_PARTS: Final = {
    "sigmas": _table,
    "timestep": partial(_numbers, lambda s, sigma: float(s.timestep(sigma)), "sigma"),
    "sigma_of_timestep": partial(
        _numbers, lambda s, timestep: s.sigma_at(timestep), "sigma_of_timestep_in"
    ),
    "calculate_input": partial(_rows, lambda s, sigma, x, o, lat: x * s.input_scale(sigma)),
    "calculate_denoised": partial(_rows, lambda s, sigma, x, o, lat: s.denoised(x, o, sigma)),
    "noise_scaling_max0": partial(
        _rows, lambda s, sigma, x, o, lat: s.noised_picture(lat, x, sigma)
    ),
    "noise_scaling_max1": partial(_rows, lambda s, sigma, x, o, lat: s.noised_whole(lat, x, sigma)),
    "inverse_noise_scaling": partial(_rows, lambda s, sigma, x, o, lat: s.finished(x, 0.5 * sigma)),
}
