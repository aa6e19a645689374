"""Graphs with ControlNets, lowered and run in one process, give ComfyUI's numbers.

The goldens and the checkpoint (0.5 GB, made once into pytest's cache) are not in the checkout:
without the full goldens these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.checkpoints import PEER
from kit.goldens import golden_folder
from kit.graph_goldens import assert_as_recorded, peer_process
from kit.in_process import InProcess
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet


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
    write_tiny_controlnet(
        base / "models" / "controlnet" / "control-sd15-peer.safetensors", size=PEER.unet
    )
    return peer_process(base, cache.mkdir("nodeloom-checkpoints"), goldens / "inputs")


@pytest.mark.parametrize("case", ["sd15-controlnet", "sd15-controlnet-range"])
def test_a_steered_graph_gives_the_tensors_that_comfyui_gave(
    case: str, goldens: Path, process: InProcess
) -> None:
    assert_as_recorded(process, goldens, case)
