"""Graphs of SD3, lowered and run in one process, give ComfyUI's numbers.

The goldens and the checkpoint (0.4 GB, made once into pytest's cache) are not in the checkout:
without the full goldens these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.checkpoints import peer_sd3_checkpoint
from kit.goldens import golden_folder
from kit.graph_goldens import assert_as_recorded, peer_process
from kit.in_process import InProcess


@pytest.fixture(scope="module")
def goldens() -> Path:
    return golden_folder("full") / "e2e"


@pytest.fixture(scope="module")
def process(
    goldens: Path, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> InProcess:
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("nodeloom-checkpoints")
    base = tmp_path_factory.mktemp("peer")
    return peer_process(base, cache, goldens / "inputs", peer_sd3_checkpoint)


@pytest.mark.parametrize("name", ["euler", "dpmpp2m-karras", "img2img", "inpaint-mask", "shift5"])
def test_a_graph_gives_the_tensors_that_comfyui_gave(
    name: str, goldens: Path, process: InProcess
) -> None:
    assert_as_recorded(process, goldens, f"sd3-{name}")
