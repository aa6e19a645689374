"""Graphs with LoRAs of every format, lowered and run in one process, give ComfyUI's numbers.

The goldens, the checkpoint (0.5 GB) and the LoRAs are not in the checkout (the last two are made
once into pytest's cache): without the full goldens these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.checkpoints import PEER
from kit.goldens import golden_folder
from kit.graph_goldens import assert_as_recorded, peer_process
from kit.in_process import InProcess
from kit.loras import KINDS, write_lora


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
    for kind in KINDS:
        write_lora(base / "models" / "loras" / f"sd15-{kind}-peer.safetensors", kind, size=PEER)
    return peer_process(base, cache.mkdir("nodeloom-checkpoints"), goldens / "inputs")


@pytest.mark.parametrize("case", [*KINDS, "two-loras"])
def test_a_patched_graph_gives_the_tensors_that_comfyui_gave(
    case: str, goldens: Path, process: InProcess
) -> None:
    assert_as_recorded(process, goldens, f"sd15-{case}")


def test_all_these_graphs_together_read_the_checkpoint_once_per_model(process: InProcess) -> None:
    assert len(process.models.take_loaded()) == len(process.models.resident()) == 3
