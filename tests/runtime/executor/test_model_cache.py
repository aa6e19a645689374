from __future__ import annotations

import os
from pathlib import Path

import pytest
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.runtime.errors import Cancelled, OutOfMemory
from nodeloom.runtime.executor.model_cache import ModelCache
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.tiny import write_tiny_sd15
from nodeloom.runtime.models.weight_files import identify

Refs = dict[Role, ModelRef]


def go_on() -> None:
    """Nobody cancels."""


@pytest.fixture(scope="module")
def sizes(refs: Refs) -> dict[Role, int]:
    """Bytes of each loaded model."""
    cache = ModelCache(2**30, "cpu", build)
    return {role: cache.get(ref, go_on).num_bytes for role, ref in refs.items()}


def test_a_model_is_loaded_once_and_counted(refs: Refs) -> None:
    cache = ModelCache(2**30, "cpu", build)
    first = cache.get(refs[Role.VAE], go_on)
    assert cache.get(refs[Role.VAE], go_on) is first
    (loaded,) = cache.take_loaded()
    assert loaded.key == refs[Role.VAE].key
    assert loaded.num_bytes == first.num_bytes == cache.num_bytes
    assert loaded.seconds_s > 0
    assert cache.take_loaded() == ()


def test_the_least_recently_used_goes_when_the_budget_is_full(
    refs: Refs, sizes: dict[Role, int]
) -> None:
    vae, text, denoiser = (refs[role] for role in (Role.VAE, Role.TEXT_ENCODER, Role.DENOISER))
    budget = sum(sizes.values()) - 1
    cache = ModelCache(budget, "cpu", build)
    cache.get(vae, go_on)
    cache.get(text, go_on)
    cache.get(vae, go_on)
    cache.get(denoiser, go_on)
    assert cache.num_bytes <= budget
    assert text.key not in cache.resident()
    assert denoiser.key in cache.resident()
    cache.get(text, go_on)  # comes back, and the budget still holds
    assert cache.num_bytes <= budget
    assert text.key in cache.resident()


def test_a_model_larger_than_the_budget_is_out_of_memory(
    refs: Refs, sizes: dict[Role, int]
) -> None:
    cache = ModelCache(sizes[Role.TEXT_ENCODER] - 1, "cpu", build)
    with pytest.raises(OutOfMemory) as caught:
        cache.get(refs[Role.TEXT_ENCODER], go_on)
    assert caught.value.details["wanted_bytes"] == sizes[Role.TEXT_ENCODER]
    assert (cache.num_bytes, cache.resident()) == (0, ())


def test_dropping_empties_it(refs: Refs) -> None:
    cache = ModelCache(2**30, "cpu", build)
    cache.get(refs[Role.VAE], go_on)
    cache.drop_all()
    assert (cache.num_bytes, cache.resident()) == (0, ())


def test_a_load_can_be_cancelled_and_leaves_nothing(refs: Refs) -> None:
    calls = 0

    def cancel_later() -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise Cancelled("nobody waits")

    cache = ModelCache(2**30, "cpu", build)
    with pytest.raises(Cancelled):
        cache.get(refs[Role.DENOISER], cancel_later)
    assert cache.resident() == ()


def test_a_file_that_changed_or_went_away_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_tiny_sd15(path)
    ref = ModelRef(key=ModelKey(role=Role.VAE, family="sd15", file=identify(path), dtype="float16"))
    os.utime(path, ns=(1, 1))
    cache = ModelCache(2**30, "cpu", build)
    with pytest.raises(ModelFileProblem, match="changed"):
        cache.get(ref, go_on)
    path.unlink()
    with pytest.raises(ModelFileProblem, match="no such file"):
        cache.get(ref, go_on)
    assert cache.resident() == ()
