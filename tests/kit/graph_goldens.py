"""Whole graphs run in one process, against the tensors that ComfyUI's nodes gave."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from nodeloom.runtime.values import Conditioning, Latent
from safetensors.torch import load_file

from .checkpoints import peer_checkpoint
from .in_process import InProcess

RELATIVE = 1e-4  # of the reference's deviation: latents and conditioning
ABSOLUTE = 1e-4  # pictures
SMALL_MEMORY_BYTES = 2**31  # holds one checkpoint of the goldens


def peer_process(
    base: Path, cache: Path, pictures: Path, make: Callable[[Path], Path] = peer_checkpoint
) -> InProcess:
    """A process whose base directory has a checkpoint of the goldens and their pictures.

    The checkpoint is made once into `cache`, a folder that outlives the run.
    """
    checkpoint = make(cache)
    checkpoints = base / "models" / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    (checkpoints / checkpoint.name).symlink_to(checkpoint)
    (base / "input").mkdir(exist_ok=True)
    for picture in pictures.iterdir():
        (base / "input" / picture.name).write_bytes(picture.read_bytes())
    return InProcess(base, model_memory_bytes=SMALL_MEMORY_BYTES)


def assert_as_recorded(
    process: InProcess,
    goldens: Path,
    case: str,
) -> None:
    """Every tensor that was recorded of a graph comes out of its node."""
    for name, (error, limit) in errors(process, goldens, case).items():
        assert error <= limit, (name, error, limit)


def errors(
    process: InProcess,
    goldens: Path,
    case: str,
) -> dict[str, tuple[float, float]]:
    """Of every tensor that was recorded of a graph: its largest error, and its limit.

    Raises: AssertionError: one has another shape, or none of the graph's nodes gives it.
    """
    graph: dict[str, Any] = json.loads((goldens / f"{case}.json").read_text("utf-8"))
    recorded = load_file(goldens / f"{case}.safetensors")
    given = process.run(graph)
    found: dict[str, tuple[float, float]] = {}
    for node_id, node in graph.items():
        kept = node.get("_meta", {}).get("title", "").removeprefix("keep ")
        if kept not in recorded:
            continue
        for suffix, tensor in _tensors_of(given[node_id][0]).items():
            if kept + suffix not in recorded:
                continue
            reference = recorded[kept + suffix]
            assert tensor.shape == reference.shape
            limit = ABSOLUTE if kept == "image" else RELATIVE * reference.std().item()
            found[kept + suffix] = ((tensor - reference).abs().max().item(), limit)
    assert found.keys() == recorded.keys()
    return found


def _tensors_of(value: Any) -> Mapping[str, torch.Tensor]:
    if isinstance(value, Conditioning):
        (entry,) = value.entries
        assert entry.pooled is not None
        return {"": entry.cond, ".pooled": entry.pooled}
    if isinstance(value, Latent):
        mask = {} if value.noise_mask is None else {".noise_mask": value.noise_mask}
        return {"": value.samples, **mask}
    return {"": value}
