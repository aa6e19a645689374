"""A load is whole or fails with the file's name and the reason."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from kit.checkpoints import SD15_ROLES, load_model, model_ref
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import Role
from nodeloom.runtime.errors import Cancelled
from nodeloom.runtime.models.headers import DENOISER_PREFIX, VAE_PREFIX
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.sd15.denoiser import Denoiser
from nodeloom.runtime.models.text.places import SD15_TEXT_PREFIX
from nodeloom.runtime.models.tiny import write_tiny_sd15
from nodeloom.runtime.values import Conditioning
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.safetensors"
    write_tiny_sd15(path)
    return path


def rewrite(path: Path, change: Callable[[Tensors], Tensors]) -> None:
    save_file(change(dict(load_file(path))), path)


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {n: t for n, t in tensors.items() if n != name}


def replaced(name: str, *shape: int) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: torch.zeros(shape, dtype=torch.float16)}


TIME = DENOISER_PREFIX + "time_embed.0.weight"
HEAD_K = DENOISER_PREFIX + "middle_block.1.transformer_blocks.0.attn2.to_k.weight"


@pytest.mark.parametrize(
    ("role", "change", "message"),
    [
        (Role.DENOISER, without(TIME), r"1 weights are missing: time_embedding\.linear_1\.weight"),
        (Role.DENOISER, without(HEAD_K), f"the weight {HEAD_K} is missing"),
        (Role.DENOISER, replaced(HEAD_K, 4), f"the weight {HEAD_K} has a wrong shape"),
        (Role.DENOISER, replaced(TIME, 7, 7), r"time_embedding.* has shape \[7, 7\] instead of"),
        (Role.DENOISER, replaced(DENOISER_PREFIX + "extra.a", 1), "1 weights are unknown: extra"),
        (
            Role.DENOISER,
            replaced(DENOISER_PREFIX + "input_blocks.9.0.op.weight", 8, 8, 3, 3),
            "resnets per level is unknown|is missing",
        ),
        (
            Role.DENOISER,
            replaced(DENOISER_PREFIX + "input_blocks.1.0.out_layers.3.weight", 31, 31, 3, 3),
            "its shapes make no known model",
        ),
        (Role.VAE, without(VAE_PREFIX + "quant_conv.bias"), "1 weights are missing: quant_conv"),
        (Role.VAE, replaced(VAE_PREFIX + "loss.logvar", 1), "1 weights are unknown: loss.logvar"),
        (
            Role.TEXT_ENCODER,
            without(SD15_TEXT_PREFIX + "text_model.final_layer_norm.weight"),
            "1 weights are missing: text_model.final_layer_norm.weight",
        ),
    ],
)
def test_a_damaged_part_is_refused(
    checkpoint: Path, role: Role, change: Callable[[Tensors], Tensors], message: str
) -> None:
    rewrite(checkpoint, change)
    with pytest.raises(ModelFileProblem, match=message) as caught:
        load_model(checkpoint, role)
    assert str(checkpoint) in caught.value.message


@pytest.mark.parametrize("role", SD15_ROLES)
def test_a_part_that_the_file_lacks_is_refused(checkpoint: Path, role: Role) -> None:
    prefixes = {
        Role.DENOISER: DENOISER_PREFIX,
        Role.VAE: VAE_PREFIX,
        Role.TEXT_ENCODER: SD15_TEXT_PREFIX,
    }
    model = build(model_ref(checkpoint, role))
    stripped = checkpoint.with_name("stripped.safetensors")
    kept = {n: t for n, t in load_file(checkpoint).items() if not n.startswith(prefixes[role])}
    save_file(kept, stripped)
    os.replace(stripped, checkpoint)
    with pytest.raises(ModelFileProblem, match="was changed"):
        model.load("cpu")


def test_a_file_that_was_touched_after_the_request_is_refused(checkpoint: Path) -> None:
    model = build(model_ref(checkpoint, Role.VAE))
    os.utime(checkpoint, ns=(0, 0))
    with pytest.raises(ModelFileProblem, match="was changed"):
        model.load("cpu")


def test_leftovers_that_files_carry_are_ignored(checkpoint: Path) -> None:
    def add_leftovers(tensors: Tensors) -> Tensors:
        tensors[SD15_TEXT_PREFIX + "text_model.embeddings.position_ids"] = torch.arange(77)[None]
        tensors["model_ema.decay"] = torch.zeros(())
        return tensors

    rewrite(checkpoint, add_leftovers)
    for role in SD15_ROLES:
        assert load_model(checkpoint, role).num_bytes > 0


def test_old_files_without_the_text_model_level_load(checkpoint: Path) -> None:
    reference = condition(checkpoint)
    rewrite(
        checkpoint,
        lambda tensors: {n.replace(".text_model.", "."): t for n, t in tensors.items()},
    )
    assert torch.equal(condition(checkpoint), reference)


def test_a_float32_text_encoder_counts_as_float16(checkpoint: Path) -> None:
    reference = condition(checkpoint)
    # What rounding to float16 takes off again: an eighth of its step.
    nudged = lambda t: t.float() * (1 + 2**-14) if t.is_floating_point() else t  # noqa: E731
    rewrite(checkpoint, lambda tensors: {n: nudged(t) for n, t in tensors.items()})
    assert torch.equal(condition(checkpoint), reference)


def condition(checkpoint: Path) -> torch.Tensor:
    given = load_model(checkpoint, Role.TEXT_ENCODER).execute(text="a (red:1.3) fox")
    conditioning = given["conditioning"]
    assert isinstance(conditioning, Conditioning)
    return conditioning.entries[0].cond


def test_a_load_can_be_interrupted(checkpoint: Path) -> None:
    model = build(model_ref(checkpoint, Role.DENOISER))
    assert isinstance(model, Denoiser)
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 300:
            raise Cancelled("interrupted")

    with pytest.raises(Cancelled):
        model.load("cpu", check)
    assert calls == 300


@pytest.mark.parametrize("role", SD15_ROLES)
def test_the_bytes_of_a_model_are_known_before_it_is_loaded(checkpoint: Path, role: Role) -> None:
    model = build(model_ref(checkpoint, role))
    expected = model.num_bytes
    model.load("cpu")
    assert model.num_bytes <= expected + 77 * 8  # a table of positions that no file need hold
    assert model.num_bytes >= 0.99 * expected


@pytest.mark.parametrize("role", [Role.DENOISER, Role.VAE])
def test_overwriting_the_file_changes_no_loaded_weight(checkpoint: Path, role: Role) -> None:
    rewrite(checkpoint, lambda tensors: {name: t.float() for name, t in tensors.items()})
    module = load_model(checkpoint, role)._module  # type: ignore[attr-defined]
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with checkpoint.open("r+b") as file:
        file.seek(checkpoint.stat().st_size // 2)
        file.write(b"\0" * (checkpoint.stat().st_size // 4))
    after = module.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
