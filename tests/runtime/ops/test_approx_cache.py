"""Bodies of lookup, resume and store: levels in order, the request's own noise, soft failures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kit.op_calls import run_op
from nodeloom.graph_import.sampling.base import SamplerState
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.sampling.noise import sampler_generator
from nodeloom.runtime.values import CondEntry, Conditioning, SamplingRun

KEYS = ("a" * 64, "b" * 64)
ROOM = 10**6


def text(*pooled: float, tokens: float = 1.0) -> Conditioning:
    vector = torch.tensor([pooled]) if pooled else None
    return Conditioning(entries=(CondEntry(cond=torch.full((1, 77, 4), tokens), pooled=vector),))


def store(folder: Path, key: str, positive: Conditioning, x: float = 1.0) -> None:
    run = SamplingRun(
        state=SamplerState(x=torch.full((1, 4, 8, 8), x)), generator=sampler_generator(1)
    )
    args = {"folder": str(folder), "key": key, "max_bytes": ROOM}
    result = run_op("latents_store", {**args, "state": run, "positive": positive})
    assert result.outputs == ()


def look_up(folder: Path, positive: Conditioning, *similarities: float) -> tuple[object, ...]:
    args: dict[str, object] = {"folder": str(folder), "positive": positive}
    for level, similarity in enumerate(similarities):
        args |= {f"key_{level}": KEYS[level], f"similarity_{level}": similarity}
    return run_op("latents_lookup", args).outputs


def test_an_empty_cache_is_a_miss(tmp_path: Path) -> None:
    assert look_up(tmp_path / "none", text(1.0, 0.0), 0.5) == (-1, "")


def test_the_first_level_that_applies_is_taken(tmp_path: Path) -> None:
    for key in KEYS:
        store(tmp_path, key, text(1.0, 0.0))
    for angle, level in ((0.1, 0), (0.5, 1), (1.5, -1)):
        positive = text(
            *torch.tensor([angle]).cos().tolist(), *torch.tensor([angle]).sin().tolist()
        )
        assert look_up(tmp_path, positive, 0.95, 0.8)[0] == level


def test_a_resumed_run_has_the_kept_state_and_its_own_noise(tmp_path: Path) -> None:
    store(tmp_path, KEYS[0], text(1.0, 0.0), x=3.0)
    _, entry = look_up(tmp_path, text(2.0, 0.0), 1.0)
    args = {"folder": str(tmp_path), "entry": entry, "seed": 42}
    (run,) = run_op("latents_resume", args).outputs
    assert isinstance(run, SamplingRun)
    assert torch.equal(run.state.x, torch.full((1, 4, 8, 8), 3.0))
    assert torch.equal(run.generator, sampler_generator(42))


def test_resuming_what_is_gone_fails(tmp_path: Path) -> None:
    args = {"folder": str(tmp_path), "entry": f"{KEYS[0]}/{KEYS[1]}", "seed": 42}
    with pytest.raises(NodeFailed, match="gone"):
        run_op("latents_resume", args)


def test_without_a_pooled_vector_the_tokens_count(tmp_path: Path) -> None:
    store(tmp_path, KEYS[0], text())
    assert look_up(tmp_path, text(tokens=2.0), 0.99)[0] == 0


def test_a_text_without_direction_is_neither_kept_nor_found(tmp_path: Path) -> None:
    store(tmp_path, KEYS[0], text(0.0, 0.0))
    store(tmp_path, KEYS[0], text(float("nan"), 1.0))
    assert list(tmp_path.iterdir()) == []
    assert look_up(tmp_path, text(0.0, 0.0), 0.0) == (-1, "")
