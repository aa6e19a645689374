"""Whole graphs run in one process, against the tensors that ComfyUI's nodes gave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from nodeloom.runtime.values import Conditioning, Latent
from safetensors.torch import load_file

from .checkpoints import peer_checkpoint
from .in_process import InProcess

RELATIVE = 1e-4  # of the reference's deviation: latents and conditioning
ABSOLUTE = 1e-4  # pictures


def peer_process(base: Path, cache: Path, pictures: Path) -> InProcess:
    """A process whose base directory has the goldens' checkpoint and pictures.

    The checkpoint is made once into `cache`, a folder that outlives the run.
    """
    checkpoint = peer_checkpoint(cache)
    checkpoints = base / "models" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / checkpoint.name).symlink_to(checkpoint)
    (base / "input").mkdir(exist_ok=True)
    for picture in pictures.iterdir():
        (base / "input" / picture.name).write_bytes(picture.read_bytes())
    return InProcess(base)


def assert_as_recorded(process: InProcess, goldens: Path, case: str) -> None:
    """Every tensor that was recorded of a graph comes out of its node."""
    graph: dict[str, Any] = json.loads((goldens / f"{case}.json").read_text("utf-8"))
    recorded = load_file(goldens / f"{case}.safetensors")
    given = process.run(graph)
    compared: set[str] = set()
    for node_id, node in graph.items():
        kept = node.get("_meta", {}).get("title", "").removeprefix("keep ")
        if kept not in recorded:
            continue
        for suffix, tensor in _tensors_of(given[node_id][0]).items():
            reference = recorded[kept + suffix]
            assert tensor.shape == reference.shape
            limit = ABSOLUTE if kept == "image" else RELATIVE * reference.std().item()
            error = (tensor - reference).abs().max().item()
            assert error <= limit, (kept + suffix, error, limit)
            compared.add(kept + suffix)
    assert compared == set(recorded)


def _tensors_of(value: Any) -> Mapping[str, torch.Tensor]:
    if isinstance(value, Conditioning):
        (entry,) = value.entries
        assert entry.pooled is not None
        return {"": entry.cond, ".pooled": entry.pooled}
    return {"": value.samples if isinstance(value, Latent) else value}
