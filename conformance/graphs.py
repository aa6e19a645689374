"""e2e/*.json: whole graphs, validated, lowered and run in one process.

The checkpoints (0.9 GB) are made into the folder that NODELOOM_PEER_MODELS names, and stay there;
without it into one that goes with the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from kit.checkpoints import PEER, peer_checkpoint, peer_sd3_checkpoint, write_peer_embedding
from kit.graph_goldens import errors, peer_process
from kit.in_process import InProcess
from kit.loras import KINDS, write_lora
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet

from .case import Case, Outcome, worst

CHECKPOINTS: Final = {"sd15": peer_checkpoint, "sd3": peer_sd3_checkpoint}


def cases(goldens: Path) -> Iterator[Case]:
    """A case for each graph; families one after another, as only one's models fit in memory."""
    folder = goldens / "e2e"
    for name in sorted(path.stem for path in folder.glob("*.json")):
        yield Case(f"e2e/{name}", partial(_compared, folder, name))


def _compared(folder: Path, name: str) -> Outcome:
    """Errors as shares of their limits: conditionings, latents and pictures have different ones."""
    process = _process(folder, name.partition("-")[0])
    found = errors(process, folder, name)
    return worst([Outcome(error / limit, 1.0, key) for key, (error, limit) in found.items()])


@cache
def _temporary() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="nodeloom-conformance-")


@cache
def _process(folder: Path, family: str) -> InProcess:
    base = Path(_temporary().name) / family
    models = base / "models"
    kept = Path(os.environ.get("NODELOOM_PEER_MODELS") or _temporary().name)
    kept.mkdir(parents=True, exist_ok=True)
    if family == "sd15":
        for kind in KINDS:
            write_lora(models / "loras" / f"sd15-{kind}-peer.safetensors", kind, size=PEER)
        write_tiny_controlnet(
            models / "controlnet" / "control-sd15-peer.safetensors", size=PEER.unet
        )
        (models / "embeddings").mkdir(parents=True)
        write_peer_embedding(models / "embeddings")
    return peer_process(base, kept, folder / "inputs", CHECKPOINTS[family])
