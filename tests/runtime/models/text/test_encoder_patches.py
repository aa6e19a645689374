"""Patches on text encoders of several encoders find theirs, and come off bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kit.encoder_files import (
    G_WIDTH,
    L_WIDTH,
    OWN,
    QWEN_WIDTH,
    T5_WIDTH,
    encode,
    loaded,
)
from kit.tiny_text import made, scaled
from nodeloom.graph_import.handles import Patch
from nodeloom.runtime.executor.patches import Patches
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.values import CondEntry
from safetensors.torch import save_file


def test_a_patched_weight_of_8_bits_is_held_in_16(tmp_path: Path) -> None:
    name = "encoder.block.0.layer.1.DenseReluDense.wo"
    save_file(dict(scaled(made(OWN["t5"]))), tmp_path / "t5.safetensors")
    delta = torch.randn(T5_WIDTH, 256, generator=torch.Generator().manual_seed(1)) * 0.1
    save_file({f"lora_te3_{name.replace('.', '_')}.diff": delta}, tmp_path / "lora.safetensors")
    model = loaded(tmp_path, "sd3", "t5")
    target, own = model.patch_target(), f"t5xxl.{name.removeprefix('encoder.')}.weight"
    weight = dict(target.module.named_parameters())[own]
    before, held, first = target.widened(own, weight.data), weight.data, encode(model).cond
    patches, asked = Patches(model.ref.key, model), []
    lora = Patch(file=identify(tmp_path / "lora.safetensors"), strength=0.5)
    patches.put_on((lora,), asked.append, lambda: None)
    assert torch.equal(weight.data, (before + 0.5 * delta).half())
    assert asked == [patches.num_bytes] == [weight.numel() * 2]
    assert not torch.equal(encode(model).cond, first)
    patches.take_off()
    assert weight.data.data_ptr() == held.data_ptr()
    assert torch.equal(encode(model).cond, first)


@pytest.mark.parametrize(
    ("family", "names", "stem"),
    [
        ("sdxl", ("l", "g"), "lora_te1_text_model_encoder_layers_0_mlp_fc1"),
        ("sdxl", ("l", "g"), "lora_te2_text_model_encoder_layers_0_mlp_fc1"),
        ("sdxl", ("l", "g"), "lora_te2_text_projection"),
        ("sd3", ("l", "t5"), "lora_te3_encoder_block_0_layer_1_DenseReluDense_wo"),
        (
            "sd3",
            ("l", "t5"),
            "text_encoders.t5xxl.transformer.encoder.block.0.layer.0.SelfAttention.q",
        ),
        ("flux", ("l", "t5"), "lora_te2_encoder_block_0_layer_1_DenseReluDense_wo"),
        ("z_image", ("qwen",), "text_encoders.qwen3_4b.transformer.model.layers.0.mlp.down_proj"),
    ],
)
def test_a_patch_finds_its_encoder_and_comes_off_bit_for_bit(
    folder: Path, tmp_path: Path, family: str, names: tuple[str, ...], stem: str
) -> None:
    model = loaded(folder, family, *names)
    before = encode(model)
    weights = dict(model.patch_target().module.named_parameters())
    size = {
        "fc1": (64, G_WIDTH if "te2" in stem else L_WIDTH),
        "projection": (G_WIDTH, G_WIDTH),
        "wo": (T5_WIDTH, 256),
        "q": (128, T5_WIDTH),
        "proj": (QWEN_WIDTH, 2 * QWEN_WIDTH),
    }[stem.rpartition("_")[2].rpartition(".")[2]]
    path = tmp_path / "lora.safetensors"
    save_file(
        {
            f"{stem}.lora_up.weight": torch.full((size[0], 2), 0.3),
            f"{stem}.lora_down.weight": torch.full((2, size[1]), 0.3),
        },
        path,
    )
    patches = Patches(model.ref.key, model)
    patches.put_on((Patch(file=identify(path), strength=1.0),), lambda _: None, lambda: None)
    (report,) = patches.coverage
    assert (report.num_applied, report.num_ignored) == (2, 0)
    after = encode(model)
    assert not (
        torch.equal(after.cond, before.cond) and torch.equal(*map(_or_zero, (after, before)))
    )
    patches.take_off()
    assert torch.equal(encode(model).cond, before.cond)
    assert all(weights[name] is one for name, one in model.patch_target().module.named_parameters())


def _or_zero(entry: CondEntry) -> torch.Tensor:
    return torch.zeros(1) if entry.pooled is None else entry.pooled
