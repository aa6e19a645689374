"""Trajectories of the samplers against ComfyUI's, through the sampling ops' own parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from kit.toy_runs import SAMPLINGS, Trace, sampled
from nodeloom.graph_import.sampling.base import Course
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES
from nodeloom.graph_import.sampling.schedules import step_window
from safetensors import safe_open

from .case import Case, Outcome, close, worst

TOLERANCE = 1e-4
SHAPE = (2, 4, 8, 8)
SCALES = {"eps": 0.18215, "flow": 0.3611}
GROUPS = ("", "more", "i2i", "adv")
# ComfyUI shows another x than the one that the model sees: the first one at every step, or (uni_pc)
# the corrected one, scaled.
OTHER_X = ("ipndm", "ipndm_v", "deis", "uni_pc", "uni_pc_bh2")
X_AFTER_THE_STEP = ("dpm_adaptive",)


def cases(goldens: Path) -> Iterator[Case]:
    """The runs by KSampler and KSamplerAdvanced of every sampler that there is."""
    recorded = json.loads((goldens / "samplers.json").read_text("utf-8"))["runs"]
    tensors = safe_open(goldens / "samplers.safetensors", "pt")
    for key, run in recorded.items():
        kind, _, group = key.split("/")[0].partition("_")
        if group in GROUPS and key.split("/")[1] in SAMPLER_NAMES:
            compare = {"i2i": _compare_edit, "adv": _compare_windows}.get(group, _compare)
            yield Case(f"samplers/{key}", partial(compare, tensors, key, kind, run))


def _compare(tensors: Any, key: str, kind: str, run: Any) -> Outcome:
    """One KSampler on a zero latent: the last latents, and what is known of every step."""
    name, source, trace = key.split("/")[1], run.get("same_as", key), Trace()
    course = Course(tuple(run["sigmas"]), SAMPLINGS[kind])
    cfg = float(key.rsplit("cfg", 1)[1]) if "cfg" in key.rsplit("/", 1)[1] else 5.0
    ours = sampled(name, course, torch.zeros(SHAPE), seed=42, cfg=cfg, trace=trace)
    outcomes = [close(ours, tensors.get_tensor(f"{source}/final"), TOLERANCE)]
    if "calls_sigma" in run:
        asked = torch.tensor(trace.sigmas, dtype=torch.float64)
        theirs = torch.tensor(run["calls_sigma"], dtype=torch.float64)
        outcomes.append(close(asked, theirs, TOLERANCE))
    known = tensors.keys()
    if f"{source}/x" in known and name not in OTHER_X:
        seen = trace.x[1:] if name in X_AFTER_THE_STEP else trace.x[:-1]
        outcomes.append(close(torch.stack(seen), tensors.get_tensor(f"{source}/x"), TOLERANCE))
    if f"{source}/denoised" in known:
        theirs = tensors.get_tensor(f"{source}/denoised")
        outcomes.append(close(torch.stack(trace.denoised), theirs, TOLERANCE))
    return worst(outcomes)


def _compare_edit(tensors: Any, key: str, kind: str, run: Any) -> Outcome:
    """One KSampler on a picture."""
    scale, course = SCALES[kind], Course(tuple(run["sigmas"]), SAMPLINGS[kind])
    latents = tensors.get_tensor("in/i2i_latent") * scale
    ours = sampled(key.split("/")[1], course, latents, seed=7, cfg=3.0) / scale
    return close(ours, tensors.get_tensor(f"{run.get('same_as', key)}/final"), TOLERANCE)


def _compare_windows(tensors: Any, key: str, kind: str, run: Any) -> Outcome:
    """Two KSamplerAdvanced in a row, with noise left over between them."""
    name, source, sigmas = key.split("/")[1], run.get("same_as", key), tuple(run["sigmas"])
    first = Course(step_window(sigmas, start=0, end=5, keeps_noise=True), SAMPLINGS[kind])
    rest = Course(step_window(sigmas, start=5, end=10000, keeps_noise=False), SAMPLINGS[kind])
    between = sampled(name, first, torch.zeros(SHAPE), seed=7, cfg=3.0)
    ours = sampled(name, rest, between, seed=11, cfg=3.0, is_noised=False)
    found = {"stage1": between / SCALES[kind], "final": ours / SCALES[kind]}
    return worst(
        [
            close(latents, tensors.get_tensor(f"{source}/{what}"), TOLERANCE)
            for what, latents in found.items()
        ]
    )
