"""A ComfyUI-shaped base directory with our tiny random checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

from kit.prompts import TINY
from nodeloom.runtime.models.tiny import write_tiny_sd15


def make_checkpoint(folder: Path) -> Path:
    """Write the tiny checkpoint once per test session."""
    path = folder / TINY
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_tiny_sd15(path, seed=0)
    return path


def make_base(base: Path, checkpoint: Path) -> Path:
    """A base directory whose models folder has `checkpoint`, under the same file times."""
    checkpoints = base / "models" / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    shutil.copy2(checkpoint, checkpoints / TINY)
    (base / "input").mkdir(exist_ok=True)
    return base
