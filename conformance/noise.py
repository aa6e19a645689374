"""noise.json: initial noise, the samplers' own stream of draws, and noise of a Brownian path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import torch
from nodeloom.graph_import.sampling.base import Course, SamplerState
from nodeloom.graph_import.sampling.samplers import sampler
from nodeloom.runtime.sampling.noise import NoiseStream, initial_noise, sampler_generator
from nodeloom.runtime.sampling.noise_brownian import sampler_noise
from nodeloom.runtime.values import SamplingRun
from safetensors import safe_open

from .case import Case, Outcome, close, worst
from .samplers import SAMPLINGS

EXACT: Final = 0.0
BROWNIAN_TOLERANCE: Final = 1e-5
NODE_KEY: Final = "random_noise_node/42/inds_4_1"


def cases(goldens: Path) -> Iterator[Case]:
    """A case for each recorded noise."""
    recorded = json.loads((goldens / "noise.json").read_text("utf-8"))
    tensors = safe_open(goldens / "noise.safetensors", "pt")
    for case in recorded["prepare_noise"]:
        yield Case(f"noise/{case['key']}", partial(_initial, tensors, case))
    node = {"key": NODE_KEY, "seed": 42, "batch_index": [4, 1], "dtype": "float32"}
    yield Case(f"noise/{NODE_KEY}", partial(_initial, tensors, {**node, "shape": (2, 4, 4, 4)}))
    for case in recorded["default_noise_sampler"]:
        yield Case(f"noise/{case['key']}", partial(_draws, tensors, case))
    for case in recorded["brownian"]:
        yield Case(f"noise/{case['key']}", partial(_brownian, tensors, case))


def _initial(tensors: Any, case: Any) -> Outcome:
    numbers = case["batch_index"]
    chosen = None if numbers is None else tuple(numbers)
    count = case["shape"][0] if chosen is None else len(chosen)
    dtype = getattr(torch, case["dtype"])
    ours = initial_noise((count, *case["shape"][1:]), int(case["seed"]), chosen, dtype)
    if ours.dtype != dtype:
        return Outcome(float("inf"), EXACT, f"{ours.dtype} is not {dtype}")
    return close(ours, tensors.get_tensor(case["key"]), EXACT)


def _draws(tensors: Any, case: Any) -> Outcome:
    stream = NoiseStream(sampler_generator(int(case["seed"])))
    like = torch.zeros(tuple(case["shape"]))
    ours = torch.stack([stream(like) for _ in range(case["draws"])])
    return close(ours, tensors.get_tensor(case["key"]), EXACT)


def _brownian(tensors: Any, case: Any) -> Outcome:
    """Between the sigmas in order, and between pairs of them in any order."""
    sigmas, like, key = tuple(case["sigmas"]), torch.zeros(tuple(case["shape"])), case["key"]
    name = "dpmpp_sde" if case["cpu"] else "dpmpp_sde_gpu"
    sampling = SAMPLINGS[key.split("/")[2]]
    seed = int(case["seed"])
    start = SamplingRun(state=SamplerState(x=like), generator=sampler_generator(seed), seed=seed)
    noise = sampler_noise(start, sampler(name), Course(sigmas, sampling))
    in_order = torch.stack([noise(like, *ends) for ends in pairwise(sigmas)])
    pairs = case["out_of_order_pairs"]
    jumping = torch.stack([noise(like, sigmas[a], sigmas[b]) for a, b in pairs])
    recorded = tensors.get_tensor(key), tensors.get_tensor(f"{key}/out_of_order")
    return worst(
        [
            close(ours, theirs, BROWNIAN_TOLERANCE)
            for ours, theirs in zip((in_order, jumping), recorded, strict=True)
        ]
    )
