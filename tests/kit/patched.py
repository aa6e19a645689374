"""Patched models in tests: handles with patches, small LoRA files, weights before and after."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from nodeloom.graph_import.handles import ModelRef, Patch
from nodeloom.graph_import.model import Model
from nodeloom.runtime.models.patch_target import Patchable
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.models.weight_spec import Spec, materialise
from safetensors.numpy import save_file

ATTENTION = "down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"
DOTTED = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"
WEIGHT = f"{DOTTED}.weight"
WIDTH = 32  # of that matrix in the tiny checkpoint


def go_on() -> None:
    """Nobody cancels."""


def with_patches(ref: ModelRef, *patches: tuple[Path, float]) -> ModelRef:
    made = tuple(Patch(file=identify(path), strength=strength) for path, strength in patches)
    return ModelRef(key=ref.key, patches=made)


def lora_file(path: Path, spec: Mapping[str, tuple[int, ...]]) -> Path:
    """A file with tensors of these shapes."""
    whole = Spec()
    for name, shape in spec.items():
        whole[name] = (shape, 0.0, 0.5)
    save_file(materialise(whole, seed=3), path)
    return path


def square(stem: str, rank: int = 2) -> dict[str, tuple[int, ...]]:
    """A LoRA for one attention matrix."""
    return {f"{stem}.lora_up.weight": (WIDTH, rank), f"{stem}.lora_down.weight": (rank, WIDTH)}


def weights(model: Model) -> dict[str, torch.Tensor]:
    """The model's very tensors."""
    assert isinstance(model, Patchable)
    return {name: p.data for name, p in model.patch_target().module.named_parameters()}


def copies(model: Model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in weights(model).items()}


def differing(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> set[str]:
    return {name for name in first if not torch.equal(first[name], second[name])}
