"""Small text encoders as files, alone and together, and what they make of a text."""

from __future__ import annotations

from pathlib import Path

import torch
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.text.family_encoder import FamilyTextEncoder
from nodeloom.runtime.models.tiny import TextSize, text_spec
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.values import CondEntry, Conditioning
from safetensors.torch import save_file

from .tiny_text import T5Size, clip_g_spec, made, qwen3_spec, t5_spec

Tensors = dict[str, torch.Tensor]

L_WIDTH, G_WIDTH, T5_WIDTH, QWEN_WIDTH = 64, 128, 192, 128
JOINT = "text_encoders."
OWN = {
    "l": text_spec(TextSize(width=L_WIDTH, num_layers=3, inner=64)),
    "g": clip_g_spec(TextSize(width=G_WIDTH, num_layers=32, inner=64)),
    "t5": t5_spec(T5Size(width=T5_WIDTH, vocabulary=256)),
    "qwen": qwen3_spec(width=QWEN_WIDTH, vocabulary=256),
}


def write_encoders(folder: Path) -> None:
    """Files of one encoder each, and one of all of SD3's under a checkpoint's names."""
    whole: Tensors = {}
    for name, spec in OWN.items():
        tensors = made(spec)
        save_file(tensors, folder / f"{name}.safetensors")
        encoder = {"l": "clip_l", "g": "clip_g", "t5": "t5xxl"}.get(name)
        if encoder is not None:
            whole |= {f"{JOINT}{encoder}.transformer.{key}": own for key, own in tensors.items()}
    save_file(whole, folder / "whole.safetensors")


def ref(folder: Path, family: str, *names: str) -> ModelRef:
    files = [identify(folder / f"{name}.safetensors") for name in names]
    key = ModelKey(
        role=Role.TEXT_ENCODER,
        family=family,
        file=files[0],
        dtype="float16",
        more_files=tuple(files[1:]),
    )
    return ModelRef(key=key)


def loaded(folder: Path, family: str, *names: str) -> FamilyTextEncoder:
    model = build(ref(folder, family, *names))
    assert isinstance(model, FamilyTextEncoder)
    model.load("cpu")
    return model


def encode(model: FamilyTextEncoder, text: str = "a (red:1.3) cube", **more: object) -> CondEntry:
    given = model.execute(text=text, **more)["conditioning"]
    assert isinstance(given, Conditioning)
    (entry,) = given.entries
    return entry


def pooled(entry: CondEntry) -> torch.Tensor:
    assert entry.pooled is not None
    return entry.pooled


def as_open_clip(tensors: Tensors) -> Tensors:
    """CLIP-G under the names that SDXL's checkpoints have."""
    renamed: Tensors = {"logit_scale": torch.tensor(4.6)}
    attention: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        path = name.removeprefix("text_model.")
        for ours, theirs in (
            ("encoder.layers.", "transformer.resblocks."),
            ("layer_norm", "ln_"),
            ("mlp.fc1", "mlp.c_fc"),
            ("mlp.fc2", "mlp.c_proj"),
            ("self_attn.out_proj", "attn.out_proj"),
            ("embeddings.token_embedding.weight", "token_embedding.weight"),
            ("embeddings.position_embedding.weight", "positional_embedding"),
            ("final_ln_", "ln_final"),
        ):
            path = path.replace(ours, theirs)
        if path == "text_projection.weight":
            renamed["text_projection"] = tensor.t().contiguous()
        elif ".self_attn." in path:
            base, _, leaf = path.partition(".self_attn.")
            matrix, _, kind = leaf.partition("_proj.")
            attention.setdefault(f"{base}.attn.in_proj_{kind}", {})[matrix] = tensor
        else:
            renamed[path] = tensor
    joined = {name: torch.cat([parts[m] for m in "qkv"]) for name, parts in attention.items()}
    return renamed | joined
