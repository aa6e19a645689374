"""LoRAs on loaded models: on, off bit for bit, another one without reading the base again."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from kit.loras import KINDS, write_lora
from kit.patched import (
    ATTENTION,
    WEIGHT,
    copies,
    differing,
    go_on,
    lora_file,
    square,
    weights,
    with_patches,
)
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import ModelRef, Role
from nodeloom.runtime.errors import Cancelled, NodeFailed, OutOfMemory, PatchMatchesNothing
from nodeloom.runtime.executor.model_cache import ModelCache
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.weight_spec import Spec, materialise

Refs = dict[Role, ModelRef]
Files = dict[str, Path]

NUM_SWITCHES = 1000


@pytest.fixture(scope="module")
def loras(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """One file of each format, and "other": a LoRA with other numbers."""
    folder = tmp_path_factory.mktemp("loras")
    made = {kind: write_lora(folder / f"{kind}.safetensors", kind) for kind in KINDS}
    return made | {"other": write_lora(folder / "other.safetensors", seed=7)}


@pytest.fixture
def cache() -> ModelCache:
    return ModelCache(2**30, "cpu", build)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", [Role.DENOISER, Role.TEXT_ENCODER])
def test_every_format_comes_off_bit_for_bit(
    cache: ModelCache, refs: Refs, loras: Files, kind: str, role: Role
) -> None:
    plain = refs[role]
    model = cache.get(plain, go_on)
    before, tensors = copies(model), weights(model)
    patched = with_patches(plain, (loras[kind], 0.7))
    assert cache.get(patched, go_on) is model
    assert differing(before, weights(model))
    (coverage,) = cache.coverage(patched)
    assert coverage.num_applied > 0
    assert (coverage.num_ignored, coverage.num_misshapen) == (0, 0)
    assert cache.get(plain, go_on) is model
    after = weights(model)
    assert not differing(before, after)
    assert all(after[name].data_ptr() == tensors[name].data_ptr() for name in tensors)
    assert len(cache.take_loaded()) == 1


def test_what_a_patched_weight_is(cache: ModelCache, refs: Refs, tmp_path: Path) -> None:
    path = lora_file(tmp_path / "one.safetensors", square(f"lora_unet_{ATTENTION}"))
    before = copies(cache.get(refs[Role.DENOISER], go_on))
    model = cache.get(with_patches(refs[Role.DENOISER], (path, -0.5)), go_on)
    assert differing(before, weights(model)) == {WEIGHT}
    spec = Spec(
        {name: (shape, 0.0, 0.5) for name, shape in square(f"lora_unet_{ATTENTION}").items()}
    )
    up, down = (torch.from_numpy(t.astype(np.float32)) for t in materialise(spec, 3).values())
    assert torch.allclose(weights(model)[WEIGHT], before[WEIGHT] - 0.5 * (up @ down), atol=1e-6)


def test_patched_weights_of_a_text_encoder_are_rounded_to_half_precision(
    cache: ModelCache, refs: Refs, loras: Files
) -> None:
    model = cache.get(with_patches(refs[Role.TEXT_ENCODER], (loras["lora"], 0.3)), go_on)
    for tensor in weights(model).values():
        assert tensor.dtype is torch.float32
        assert torch.equal(tensor, tensor.half().float())


def test_two_loras_add_up_and_what_was_on_before_leaves_no_trace(refs: Refs, loras: Files) -> None:
    both = with_patches(refs[Role.DENOISER], (loras["lora"], 0.7), (loras["other"], -0.5))
    fresh = ModelCache(2**30, "cpu", build)
    expected = copies(fresh.get(both, go_on))
    used = ModelCache(2**30, "cpu", build)
    for kind in ("dora", "loha", "locon"):
        used.get(with_patches(refs[Role.DENOISER], (loras[kind], 1.0)), go_on)
    assert not differing(expected, copies(used.get(both, go_on)))
    swapped = with_patches(refs[Role.DENOISER], (loras["other"], -0.5), (loras["lora"], 0.7))
    used.get(swapped, go_on)
    assert used.coverage(both) == ()
    assert {report.file for report in used.coverage(swapped)} == {p.file for p in both.patches}


def test_refs_that_differ_in_options_share_a_replica(
    cache: ModelCache, refs: Refs, loras: Files
) -> None:
    patched = with_patches(refs[Role.TEXT_ENCODER], (loras["lora"], 1.0))
    skipping = ModelRef(key=patched.key, patches=patched.patches, options=(("clip_layer", -2),))
    model = cache.get(patched, go_on)
    assert cache.get(skipping, go_on) is model
    assert model.ref == skipping
    assert len(cache.take_switched()) == 1
    assert cache.resident() == (patched.key,)


def test_switches_are_reported_with_their_seconds(
    cache: ModelCache, refs: Refs, loras: Files
) -> None:
    plain = refs[Role.DENOISER]
    patched = with_patches(plain, (loras["lora"], 1.0))
    cache.get(plain, go_on)
    assert cache.take_switched() == ()
    cache.get(patched, go_on)
    cache.get(patched, go_on)
    (switched,) = cache.take_switched()
    assert (switched.key, switched.patches) == (plain.key, patched.patches)
    assert switched.seconds_s > 0
    cache.get(plain, go_on)
    assert [item.patches for item in cache.take_switched()] == [()]


def test_a_thousand_switches_hold_their_memory_and_read_the_base_once(
    refs: Refs, loras: Files
) -> None:
    cache = ModelCache(2**30, "cpu", build)
    plain = refs[Role.DENOISER]
    turns = [
        plain,
        with_patches(plain, (loras["lora"], 0.5)),
        with_patches(plain, (loras["other"], 1.0), (loras["lora"], -0.25)),
    ]
    before = copies(cache.get(plain, go_on))
    process = psutil.Process(os.getpid())
    resident_bytes = []
    for turn in range(NUM_SWITCHES):
        cache.get(turns[(turn + 1) % len(turns)], go_on)
        if turn % 100 == 99:
            gc.collect()
            resident_bytes.append(process.memory_info().rss)
    assert max(resident_bytes[1:]) <= 1.05 * resident_bytes[1]
    assert len(cache.take_loaded()) == 1
    assert len(cache.take_switched()) == NUM_SWITCHES
    assert not differing(before, weights(cache.get(plain, go_on)))


def test_the_budget_counts_what_patched_weights_hold(refs: Refs, loras: Files) -> None:
    probe = ModelCache(2**30, "cpu", build)
    plain = refs[Role.DENOISER]
    patched = with_patches(plain, (loras["locon"], 1.0))
    base_bytes = probe.get(plain, go_on).num_bytes
    before = weights(probe.get(plain, go_on))
    after = weights(probe.get(patched, go_on))
    whole_bytes = probe.num_bytes
    moved = [name for name in before if after[name].data_ptr() != before[name].data_ptr()]
    assert whole_bytes == base_bytes + sum(after[name].nbytes for name in moved)
    assert whole_bytes > base_bytes
    probe.get(plain, go_on)
    assert probe.num_bytes == base_bytes

    vae_bytes = probe.get(refs[Role.VAE], go_on).num_bytes
    tight = ModelCache(whole_bytes + vae_bytes - 1, "cpu", build)
    tight.get(refs[Role.VAE], go_on)
    tight.get(plain, go_on)
    tight.get(patched, go_on)  # needs the room that the VAE has
    assert tight.resident() == (plain.key,)
    assert tight.num_bytes == whole_bytes


def test_patches_beyond_the_budget_are_out_of_memory_and_the_base_stays(
    refs: Refs, loras: Files
) -> None:
    plain = refs[Role.DENOISER]
    base_bytes = ModelCache(2**30, "cpu", build).get(plain, go_on).num_bytes
    cache = ModelCache(base_bytes + 1000, "cpu", build)
    model = cache.get(plain, go_on)
    before = copies(model)
    with pytest.raises(OutOfMemory) as caught:
        cache.get(with_patches(plain, (loras["locon"], 1.0)), go_on)
    assert caught.value.details["budget_bytes"] == base_bytes + 1000
    assert not differing(before, weights(cache.get(plain, go_on)))
    assert len(cache.take_loaded()) == 1


def cancel_after(num_calls: int) -> Callable[[], None]:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > num_calls:
            raise Cancelled("nobody waits")

    return check


def test_a_cancelled_switch_leaves_the_pristine_base(
    cache: ModelCache, refs: Refs, loras: Files
) -> None:
    plain = refs[Role.DENOISER]
    before = copies(cache.get(plain, go_on))
    first = with_patches(plain, (loras["lora"], 1.0))
    model = cache.get(first, go_on)
    cache.take_switched()
    with pytest.raises(Cancelled):
        cache.get(with_patches(plain, (loras["other"], 1.0)), cancel_after(20))
    assert not differing(before, weights(model))
    (switched,) = cache.take_switched()
    assert switched.patches == ()
    assert differing(before, weights(cache.get(first, go_on)))


def test_a_good_lora_before_a_wrong_one_comes_off_again(
    cache: ModelCache, refs: Refs, loras: Files, tmp_path: Path
) -> None:
    stem = f"lora_unet_{ATTENTION}"
    shapes = {f"{stem}.lora_up.weight": (64, 2), f"{stem}.lora_down.weight": (2, 64)}
    wrong = lora_file(tmp_path / "wide.safetensors", shapes)
    before = copies(cache.get(refs[Role.DENOISER], go_on))
    with pytest.raises(PatchMatchesNothing, match=r"wide\.safetensors"):
        cache.get(with_patches(refs[Role.DENOISER], (loras["lora"], 1.0), (wrong, 1.0)), go_on)
    model = cache.get(refs[Role.DENOISER], go_on)
    assert not differing(before, weights(model))
    assert model.patches == []


def test_a_file_that_changed_since_the_request_is_refused(
    cache: ModelCache, refs: Refs, tmp_path: Path
) -> None:
    path = write_lora(tmp_path / "lora.safetensors")
    ref = with_patches(refs[Role.DENOISER], (path, 1.0))
    before = copies(cache.get(refs[Role.DENOISER], go_on))
    os.utime(path, ns=(1, 1))
    with pytest.raises(ModelFileProblem, match="changed"):
        cache.get(ref, go_on)
    path.unlink()
    with pytest.raises(ModelFileProblem, match="no such file"):
        cache.get(ref, go_on)
    assert not differing(before, weights(cache.get(refs[Role.DENOISER], go_on)))


def test_a_model_that_takes_no_patches_says_so(cache: ModelCache, refs: Refs, loras: Files) -> None:
    with pytest.raises(NodeFailed, match="takes no patches"):
        cache.get(with_patches(refs[Role.VAE], (loras["lora"], 1.0)), go_on)
    assert cache.get(refs[Role.VAE], go_on).patches == []
