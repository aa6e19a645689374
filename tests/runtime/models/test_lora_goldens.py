"""Graphs with LoRAs of every format, lowered and run in one process, give ComfyUI's numbers.

The goldens, the checkpoint (0.5 GB) and the LoRAs are not in the checkout (the last two are made
once into pytest's cache): without the full goldens these tests are skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.checkpoints import PEER, peer_checkpoint
from kit.goldens import golden_folder
from kit.in_process import InProcess
from kit.loras import KINDS, write_lora
from nodeloom.runtime.values import Conditioning, Latent
from safetensors.torch import load_file

RELATIVE = 1e-4  # of the reference's deviation: latents and conditioning
ABSOLUTE = 1e-4  # pictures


@pytest.fixture(scope="module")
def goldens() -> Path:
    return golden_folder("full") / "e2e"


@pytest.fixture(scope="module")
def process(
    goldens: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> InProcess:
    cache = pytestconfig.cache
    assert cache is not None
    base = tmp_path_factory.mktemp("peer")
    checkpoints = base / "models" / "checkpoints"
    checkpoints.mkdir(parents=True)
    checkpoint = peer_checkpoint(cache.mkdir("nodeloom-checkpoints"))
    (checkpoints / checkpoint.name).symlink_to(checkpoint)
    for kind in KINDS:
        write_lora(base / "models" / "loras" / f"sd15-{kind}-peer.safetensors", kind, size=PEER)
    return InProcess(base)


def tensors_of(value: Any) -> dict[str, torch.Tensor]:
    if isinstance(value, Conditioning):
        (entry,) = value.entries
        assert entry.pooled is not None
        return {"": entry.cond, ".pooled": entry.pooled}
    return {"": value.samples if isinstance(value, Latent) else value}


@pytest.mark.parametrize("case", [*KINDS, "two-loras"])
def test_a_patched_graph_gives_the_tensors_that_comfyui_gave(
    case: str, goldens: Path, process: InProcess
) -> None:
    graph = json.loads((goldens / f"sd15-{case}.json").read_text("utf-8"))
    recorded = load_file(goldens / f"sd15-{case}.safetensors")
    given = process.run(graph)
    compared: set[str] = set()
    for node_id, node in graph.items():
        kept = node.get("_meta", {}).get("title", "").removeprefix("keep ")
        if kept not in recorded:
            continue
        for suffix, tensor in tensors_of(given[node_id][0]).items():
            reference = recorded[kept + suffix]
            assert tensor.shape == reference.shape
            limit = ABSOLUTE if kept == "image" else RELATIVE * reference.std().item()
            error = (tensor - reference).abs().max().item()
            assert error <= limit, (kept + suffix, error, limit)
            compared.add(kept + suffix)
    assert compared == set(recorded)


def test_all_these_graphs_together_read_the_checkpoint_once_per_model(process: InProcess) -> None:
    assert len(process.models.take_loaded()) == len(process.models.resident()) == 3
