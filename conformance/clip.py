"""clip.json: texts through small text encoders of every family that we have, and their parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import torch
from kit.small_encoders import MODELS, SmallEncoders, largest_error, run, run_bare, run_part
from nodeloom.graph_import.handles import FileIdentity
from nodeloom.runtime.models.weight_files import identify
from safetensors.torch import load_file

from .case import Case, Outcome, worst

TOLERANCE: Final = 1e-4
HEAVY_TOLERANCE: Final = 1e-3  # of weights around 10, and of Qwen3
EMBEDDINGS: Final = ("gold_small", "gold_small_l")

Files = dict[str, FileIdentity]
Tensors = dict[str, torch.Tensor]


def cases(goldens: Path) -> Iterator[Case]:
    """A case for each text of each recorded model."""
    recorded = load_file(goldens / "clip.safetensors")
    clip = json.loads((goldens / "clip.json").read_text("utf-8"))
    encoders = SmallEncoders(load_file(goldens / "clip_weights.safetensors"), clip)
    files = {name: identify(goldens / "embeddings" / f"{name}.safetensors") for name in EMBEDDINGS}
    runs = sorted({key.rpartition("/")[0] for key in recorded})
    for name in runs:
        yield Case(f"clip/{name}", partial(_compared, encoders, recorded, files, name))


def _compared(encoders: SmallEncoders, recorded: Tensors, files: Files, name: str) -> Outcome:
    model, *middle, prompt = name.split("/")
    text = encoders.prompts[prompt]
    if model in MODELS:
        layer = None if middle == ["skipnone"] else int(middle[0].removeprefix("skip"))
        entry = run(encoders.family(model), text, files, layer)
        cond, pooled = entry.cond, entry.pooled
    elif model == "bare":
        cond, pooled = run_bare(encoders, middle[0], text)
    else:
        cond, pooled = run_part(encoders, model, text, files)
    is_heavy = prompt == "number_forms" or model == "z_image"
    tolerance = HEAVY_TOLERANCE if is_heavy else TOLERANCE
    ours = {"cond": cond, "pooled": pooled, "pooled_output": pooled}
    found = [
        Outcome(largest_error(tensor, recorded[f"{name}/{key}"]), tolerance, key)
        for key, tensor in ours.items()
        if tensor is not None and f"{name}/{key}" in recorded
    ]
    return worst(found)
