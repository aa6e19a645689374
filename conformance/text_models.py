"""models/*.safetensors: one forward pass of each kind of text encoder.

The weights are ours with seed 0, the same as the recorded ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import torch
from kit.text_goldens import RECORDED, forward
from safetensors.torch import load_file

from .case import Case, Outcome, close, worst

TOLERANCE: Final = 1e-4  # of the reference's deviation


def cases(goldens: Path) -> Iterator[Case]:
    """A case for each golden file of a text encoder that we have."""
    for name in RECORDED:
        path = goldens / "models" / f"{name}.safetensors"
        yield Case(f"models/{name}", partial(_compared, path))


def _compared(path: Path) -> Outcome:
    golden = load_file(path)
    ours = forward(path.stem, golden["tokens"])
    return worst([_relative(tensor, golden[name]) for name, tensor in ours.items()])


def _relative(ours: torch.Tensor, recorded: torch.Tensor) -> Outcome:
    deviation = recorded.double().std()
    return close(ours.double() / deviation, recorded.double() / deviation, TOLERANCE)
