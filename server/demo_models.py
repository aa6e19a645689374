"""The models that ship with nodeloom: what a server without models of its own draws with.

With them come the pictures that the example workflows read. Source of the weights: `training/`.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Final

log: Final = logging.getLogger(__name__)

KINDS: Final = ("checkpoints", "loras", "controlnet", "embeddings")


def demo_models_folder() -> Path:
    """A ComfyUI-shaped models folder."""
    return Path(str(files("nodeloom.runtime"))) / "demo_models"


def lay_example_pictures(input_directory: Path) -> None:
    """Put the example workflows' pictures into the input folder; files that are there stay."""
    for source in sorted((Path(str(files("nodeloom.workflows"))) / "pictures").glob("*.png")):
        target = input_directory / source.name
        if target.exists():
            continue
        try:
            _copy(source, target)
        except OSError as problem:
            log.warning("%s could not be laid: %s", target, problem)


def _copy(source: Path, target: Path) -> None:
    """All or nothing, as somebody may read the folder meanwhile."""
    number, partial = tempfile.mkstemp(dir=target.parent, prefix=".example-")
    os.close(number)
    try:
        shutil.copyfile(source, partial)
        Path(partial).chmod(0o644)
        Path(partial).rename(target)
    finally:
        Path(partial).unlink(missing_ok=True)
