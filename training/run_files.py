"""A run's files: a checkpoint to go on from, and the curve of its losses.

A checkpoint is one safetensors file, replaced whole: tensors of the modules, their averages and the
optimiser, and the number of steps in its metadata. Nothing is pickled.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors import safe_open
from safetensors.torch import save_file

RUNS: Final = Path(__file__).parent / "runs"
_STEP: Final = "step"

Tensors = Mapping[str, torch.Tensor]


def save_tensors(path: Path, tensors: Tensors, metadata: Mapping[str, str]) -> None:
    """Write a file, whole or not at all. Tensors that share memory are copied."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    own = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    save_file(own, unfinished, metadata=dict(metadata))
    os.replace(unfinished, path)


def load_tensors(path: Path, prefix: str = "") -> dict[str, torch.Tensor]:
    """The tensors of a file whose names start with `prefix`, under the rest of their names."""
    with safe_open(str(path), framework="pt") as stream:
        return {
            name.removeprefix(prefix): stream.get_tensor(name)
            for name in stream.keys()  # noqa: SIM118  # the file is no mapping
            if name.startswith(prefix)
        }


def save_step(path: Path, step: int, tensors: Tensors) -> None:
    """Write a checkpoint after `step` steps."""
    save_tensors(path, tensors, {_STEP: str(step)})


def load_step(path: Path) -> tuple[int, dict[str, torch.Tensor]]:
    """The number of steps and the tensors of a checkpoint."""
    with safe_open(str(path), framework="pt") as stream:
        step = int(stream.metadata()[_STEP])
    return step, load_tensors(path)


class Curve:
    """A CSV file of losses; `restart` drops the lines that will be written again.

    Args:
        columns: names beside `step`.
    """

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self._path = path
        self._header = ",".join(("step", *columns))

    def restart(self, step: int) -> None:
        """Keep the lines of the first `step` steps."""
        kept = []
        if self._path.exists():
            lines = self._path.read_text("utf-8").splitlines()[1:]
            kept = [line for line in lines if int(line.partition(",")[0]) <= step]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("\n".join([self._header, *kept]) + "\n", "utf-8")

    def add(self, step: int, values: tuple[float, ...]) -> None:
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(",".join([str(step), *(f"{value:.6g}" for value in values)]) + "\n")
