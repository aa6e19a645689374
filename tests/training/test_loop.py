"""The training loop: a run in two parts equals a run in one go, and a pause holds it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import torch

from training.loop import PAUSE_VARIABLE, Plan, rate_factor, train
from training.optimiser import orthogonal
from training.run_files import load_step, load_tensors

PLAN = Plan(num_steps=12, rate=1e-2, muon_rate=1e-2, warmup=3, every=2, save_every=4)


class LineStage:
    """Fits a line with two layers, on numbers that depend on the step alone."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 1))

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return dict(self.module.named_parameters())

    def loss(self, step: int) -> torch.Tensor:
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
        wanted = x.sum(dim=1, keepdim=True)
        loss: torch.Tensor = (self.module(x) - wanted).square().mean()
        return loss


@pytest.mark.parametrize("muon_rate", [None, 1e-2])
def test_a_run_in_two_parts_equals_one_in_one_go(tmp_path: Path, muon_rate: float | None) -> None:
    plan = Plan(num_steps=12, rate=1e-2, muon_rate=muon_rate, warmup=3, every=2, save_every=4)
    train(LineStage(), plan, tmp_path / "whole.safetensors")
    train(LineStage(), plan, tmp_path / "parts.safetensors", until=5)
    train(LineStage(), plan, tmp_path / "parts.safetensors")
    whole, parts = (load_step(tmp_path / f"{name}.safetensors") for name in ("whole", "parts"))
    assert whole[0] == parts[0] == 12
    assert whole[1].keys() == parts[1].keys()
    assert all(torch.equal(tensor, parts[1][name]) for name, tensor in whole[1].items())


def test_the_curve_has_one_line_per_few_steps_after_a_restart(tmp_path: Path) -> None:
    train(LineStage(), PLAN, tmp_path / "run.safetensors", until=4)
    with (tmp_path / "run.csv").open("a", encoding="utf-8") as stream:
        stream.write("6,1.0,1.0\n")  # of a part that was cut off before its checkpoint
    train(LineStage(), PLAN, tmp_path / "run.safetensors")
    lines = (tmp_path / "run.csv").read_text("utf-8").splitlines()
    assert [line.split(",")[0] for line in lines] == ["step", "2", "4", "6", "8", "10", "12"]


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    stage = LineStage()
    before = float(stage.loss(1000).detach())
    train(stage, Plan(num_steps=60, rate=3e-2, muon_rate=3e-2, warmup=3), tmp_path / "run")
    assert float(stage.loss(1000).detach()) < 0.3 * before


def test_averages_are_kept_beside_the_weights(tmp_path: Path) -> None:
    stage = LineStage()
    path = tmp_path / "run.safetensors"
    train(stage, PLAN, path)
    averages = load_tensors(path, "average.")
    assert averages.keys() == stage.parameters().keys()
    assert not torch.equal(averages["0.weight"], stage.parameters()["0.weight"])


def test_a_pause_file_holds_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pause = tmp_path / "pause"
    pause.touch()
    monkeypatch.setenv(PAUSE_VARIABLE, str(pause))
    monkeypatch.setattr("training.loop.PAUSE_POLL_S", 0.01)
    path = tmp_path / "run.safetensors"
    thread = threading.Thread(target=train, args=(LineStage(), PLAN, path))
    thread.start()
    thread.join(timeout=0.2)
    assert thread.is_alive()
    assert not path.exists()
    os.remove(pause)
    thread.join(timeout=30.0)
    assert path.exists()


def test_the_rate_rises_then_falls() -> None:
    plan = Plan(num_steps=100, rate=1.0, warmup=10)
    factors = [rate_factor(plan, step) for step in range(100)]
    assert factors.index(max(factors)) in (9, 10)
    assert factors[0] == pytest.approx(0.1)
    assert factors[-1] == pytest.approx(0.02, abs=0.001)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (6, 6)])
def test_an_orthogonal_change_has_singular_values_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(matrix))
    assert values.min() > 0.5
    assert values.max() < 1.3
