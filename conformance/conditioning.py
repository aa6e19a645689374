"""conds.json: what a denoiser is asked for several entries a side, what becomes of it, whole runs.

A recorded call batches what ComfyUI sends in one forward. We batch the calls of many requests, by
rules of each family: compared is which crops of which side the denoiser sees, not which of them
share a forward, in which order, and up to how many tokens texts are repeated for that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from kit.toy_denoiser import ToyDenoiser
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.model_sampling import ModelSampling
from nodeloom.graph_import.sampling.model_sampling_flow import FlowModelSampling
from nodeloom.runtime.sampling.areas import Area
from nodeloom.runtime.sampling.calls import PlannedCall
from nodeloom.runtime.sampling.guidance import GuidedRow, guide
from nodeloom.runtime.values import Conditioning, Latent
from safetensors.torch import load_file

from .case import Case, Outcome, close, equal, worst
from .cond_entries import Tensors, entry_of
from .sampler_nodes import SCALE, Graph

TOLERANCE: Final = 1e-5
RUN_TOLERANCE: Final = 1e-5
WIDTH: Final = 8  # channels of the recorded texts
SIDES: Final = ("positive", "negative")
SAMPLINGS: Final[Mapping[str, ModelSampling]] = {
    "eps": family("sd15").model_sampling,
    "flow": FlowModelSampling(shift=3.0, multiplier=1.0),
}


def cases(goldens: Path) -> Iterator[Case]:
    """A case for each evaluation, and for each whole run."""
    recorded = json.loads((goldens / "conds.json").read_text("utf-8"))
    tensors = load_file(goldens / "conds.safetensors")
    for name, case in recorded["cases"].items():
        for key, at in case["at"].items():
            run = partial(_evaluated, tensors, name, case, key, at)
            yield Case(f"conds/case/{name}/{key}", run)
    for key in tensors:
        if key.startswith("run/"):
            run = partial(_run, tensors, recorded, key)
            yield Case(f"conds/{key.removesuffix('/final')}", run)


def conditioning(tensors: Tensors, entries: Sequence[Mapping[str, Any]]) -> Conditioning:
    """One side of a case, whose texts are one number a token."""
    return Conditioning(
        entries=tuple(
            entry_of(
                torch.tensor(entry["cond"]["rows"]).reshape(1, -1, 1).expand(1, -1, WIDTH),
                {
                    name: tensors[value["tensor"]] if isinstance(value, Mapping) else value
                    for name, value in entry["extra"].items()
                },
            )
            for entry in entries
        )
    )


def _evaluated(
    tensors: Tensors, name: str, case: Mapping[str, Any], key: str, at: Mapping[str, Any]
) -> Outcome:
    kind, _, sigma = key.partition("@")
    is_video = name.startswith("5d_")
    x = tensors["in/x5" if is_video else "in/x"]
    positive, negative = (
        conditioning(tensors, _video_side(case[s]) if is_video else case[s]) for s in SIDES
    )
    row = GuidedRow(
        x=x,
        sigma=float(sigma),
        positive=positive,
        negative=negative,
        cfg_scale=1.0,
        family=family("sd15"),
        model_sampling=SAMPLINGS[kind],
        is_negative_needed=True,
    )
    (guidance,) = guide(ToyDenoiser(), [row])
    if guidance.negative is None:
        raise TypeError("the negative side was not evaluated")
    stem = f"case5/{name.removeprefix('5d_')}" if is_video else f"case/{name}/{key}"
    plan = row.plan()
    return worst(
        [
            close(guidance.denoised, tensors[f"{stem}/cond"], TOLERANCE),
            close(guidance.negative, tensors[f"{stem}/uncond"], TOLERANCE),
            equal(_crops(x, plan), _recorded_crops(at["calls"])),
            *(_areas(x, plan, at["prepared"][s], index, row) for index, s in enumerate(SIDES)),
            *_ranges(case, at["prepared"], SAMPLINGS[kind]),
        ]
    )


def _video_side(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries of a case with frames, which come without their texts: those of other cases."""
    values = [0.8, -0.5] if len(entries) > 1 else [-0.1]
    return [
        {"cond": {"rows": [value] * 4}, "extra": extra}
        for value, extra in zip(values, entries, strict=True)
    ]


def _crops(x: torch.Tensor, plan: Sequence[PlannedCall]) -> Counter[tuple[int, ...]]:
    """Side and size of what the denoiser sees, by how often."""
    return Counter((call.side, *call.crop(x).shape[1:]) for call in plan)


def _recorded_crops(calls: Sequence[Mapping[str, Any]]) -> Counter[tuple[int, ...]]:
    return Counter((side, *call["shape"][1:]) for call in calls for side in call["cond_or_uncond"])


def _areas(
    x: torch.Tensor,
    plan: Sequence[PlannedCall],
    prepared: Sequence[Mapping[str, Any]],
    side: int,
    row: GuidedRow,
) -> Outcome:
    """The areas of a side's calls, in order; defaults stand aside."""
    lengths = tuple(x.shape[2:])
    theirs = [
        _clipped(entry["area"], lengths) if "area" in entry else None
        for entry in prepared
        if not entry.get("default")
        and entry.get("timestep_start", row.sigma) >= row.sigma >= entry.get("timestep_end", 0.0)
    ]
    ours = [call.area for call in plan if call.side == side and not call.entry.is_default]
    return equal(ours, [area for area in theirs if area is None or area.size])


def _clipped(numbers: Sequence[int], lengths: tuple[int, ...]) -> Area:
    half = len(numbers) // 2
    frames = lengths[: len(lengths) - half]
    sizes, starts = (*frames, *numbers[:half]), (*(0 for _ in frames), *numbers[half:])
    return Area(sizes, starts).clipped(lengths)


def _ranges(
    case: Mapping[str, Any], prepared: Mapping[str, Any], sampling: ModelSampling
) -> Iterator[Outcome]:
    for side in SIDES:
        for given, found in zip(case[side], prepared[side], strict=False):
            for ours, theirs in (
                ("start_percent", "timestep_start"),
                ("end_percent", "timestep_end"),
            ):
                if theirs in found:
                    wanted = torch.tensor(float(found[theirs]), dtype=torch.float64)
                    edge = sampling.percent_to_sigma(given["extra"][ours])
                    yield close(
                        torch.tensor(edge, dtype=torch.float64),
                        wanted,
                        1e-6 * max(1.0, wanted.item()),
                    )


def _run(tensors: Tensors, recorded: Mapping[str, Any], key: str) -> Outcome:
    """A KSampler's. The recorded latent format has a scale of 1, ours SD1.5's: it is taken out."""
    _, kind, name, sampler_name, _ = key.split("/")
    settings, case, graph = recorded["run"], recorded["cases"][name], Graph(kind)
    sides = {s: graph.given(conditioning(tensors, case[s]), "CONDITIONING") for s in SIDES}
    (output,) = graph.node(
        "KSampler",
        model=graph.handle,
        seed=settings["seed"],
        steps=settings["steps"],
        cfg=settings["cfg"],
        sampler_name=sampler_name,
        scheduler=settings["scheduler"],
        **sides,
        latent_image=graph.given(Latent(samples=torch.zeros(2, 4, 16, 24)), "LATENT"),
        denoise=1.0,
    )
    return close(graph.latents(output) * SCALE, tensors[key], RUN_TOLERANCE)
