"""The tiny checkpoint is small, the same everywhere, and written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kit.checkpoints import load_model
from nodeloom.graph_import.handles import Role
from nodeloom.runtime.models.tiny import SLOW, TINY, write_tiny_sd15


def test_the_tiny_checkpoint_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second, other = (tmp_path / name for name in ("a", "b", "c"))
    write_tiny_sd15(first, seed=3)
    write_tiny_sd15(second, seed=3)
    write_tiny_sd15(other, seed=4)
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()
    assert first.stat().st_size < 12_000_000


def test_a_checkpoint_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "models" / "tiny.safetensors"
    write_tiny_sd15(path)
    write_tiny_sd15(path, seed=1)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="tiny"):
        write_tiny_sd15(path)
    assert list(path.parent.iterdir()) == [path]


def test_the_slow_checkpoint_runs_and_outweighs_the_tiny_one(tmp_path: Path) -> None:
    num_bytes = {}
    for name, size in (("tiny", TINY), ("slow", SLOW)):
        write_tiny_sd15(tmp_path / name, size=size)
        denoiser = load_model(tmp_path / name, Role.DENOISER)
        inputs = {"x": torch.zeros(1, 4, 8, 8), "sigma": 1.0, "context": torch.zeros(1, 77, 64)}
        denoised = denoiser.execute(**inputs)["denoised"]
        assert isinstance(denoised, torch.Tensor)
        assert denoised.isfinite().all()
        num_bytes[name] = denoiser.num_bytes
    assert num_bytes["slow"] > 20 * num_bytes["tiny"]
