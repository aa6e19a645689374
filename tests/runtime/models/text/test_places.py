"""Text encoders are found by the names in a file, in checkpoints and in files of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.tiny_text import T5Size, clip_g_spec, made, qwen3_spec, scaled, t5_spec
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import Role
from nodeloom.runtime.models.headers import inspect_checkpoint, inspect_part
from nodeloom.runtime.models.text.places import text_places
from nodeloom.runtime.models.tiny import TextSize, text_spec
from nodeloom.runtime.models.weight_files import read_header
from nodeloom.runtime.models.weight_spec import Spec
from safetensors.torch import save_file

CLIP_L = text_spec(TextSize(width=64, num_layers=2, inner=64), vocabulary=64)
CLIP_G = clip_g_spec(TextSize(width=64, num_layers=32, inner=64))
CLIP_H = text_spec(TextSize(width=64, num_layers=24, inner=64), vocabulary=64)
T5 = t5_spec(T5Size(width=64, vocabulary=64))
QWEN = qwen3_spec(vocabulary=64)
OPEN_CLIP = {
    "token_embedding.weight": (64, 64),
    "positional_embedding": (77, 64),
    "transformer.resblocks.0.mlp.c_fc.weight": (64, 64),
    "transformer.resblocks.31.mlp.c_fc.weight": (64, 64),
    "transformer.resblocks.22.mlp.c_fc.weight": (64, 64),
    "transformer.resblocks.30.mlp.c_fc.weight": (64, 64),
}
JOINT = "text_encoders."
SECOND_TABLE = "encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"


def written(path: Path, *parts: tuple[str, Mapping[str, Any]]) -> Path:
    """A file with the tensors of each part behind its prefix."""
    tensors: dict[str, torch.Tensor] = {}
    for prefix, part in parts:
        own = made(part) if isinstance(part, Spec) else _zeros(part)
        tensors |= {prefix + name: tensor for name, tensor in own.items()}
    save_file(tensors, path)
    return path


def _zeros(shapes: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(shape, dtype=torch.float16) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("part", "encoder"),
    [
        (CLIP_L, "clip_l"),
        (CLIP_G, "clip_g"),
        (OPEN_CLIP, "clip_g"),
        (T5, "t5xxl"),
        (QWEN, "qwen3_4b"),
    ],
    ids=["clip_l", "clip_g", "open_clip", "t5", "qwen3"],
)
def test_a_file_of_one_encoder_is_known_by_its_layers_and_names(
    part: Mapping[str, Any], encoder: str, tmp_path: Path
) -> None:
    info = inspect_part(written(tmp_path / "one.safetensors", ("", part)))
    assert (info.roles, info.encoders, info.dtype) == ({Role.TEXT_ENCODER}, (encoder,), "float16")


def test_a_scaled_file_is_known_too(tmp_path: Path) -> None:
    path = tmp_path / "t5.safetensors"
    save_file(dict(scaled(made(T5))), path)
    assert inspect_part(path).encoders == ("t5xxl",)


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        (
            [(JOINT + "clip_l.transformer.", CLIP_L), (JOINT + "t5xxl.transformer.", T5)],
            [("clip_l", JOINT + "clip_l.transformer."), ("t5xxl", JOINT + "t5xxl.transformer.")],
        ),
        (
            [
                ("conditioner.embedders.0.transformer.", CLIP_L),
                ("conditioner.embedders.1.model.", OPEN_CLIP),
            ],
            [
                ("clip_l", "conditioner.embedders.0.transformer."),
                ("clip_g", "conditioner.embedders.1.model."),
            ],
        ),
        (
            [("conditioner.embedders.0.model.", OPEN_CLIP)],
            [("clip_g", "conditioner.embedders.0.model.")],
        ),
        (
            [("cond_stage_model.transformer.", CLIP_L)],
            [("clip_l", "cond_stage_model.transformer.")],
        ),
    ],
    ids=["sd3", "sdxl", "refiner", "sd15"],
)
def test_the_encoders_of_a_checkpoint_are_found(
    parts: list[tuple[str, Mapping[str, Any]]], found: list[tuple[str, str]], tmp_path: Path
) -> None:
    tensors = read_header(written(tmp_path / "checkpoint.safetensors", *parts)).tensors
    assert [(place.encoder, place.prefix) for place in text_places(tensors)] == found


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (CLIP_H, "this is CLIP-H, a text encoder that isn't supported yet"),
        ({name: (4, 4) for name in T5 if "wi_1" not in name}, "this is a T5 without gates"),
        ({**dict.fromkeys(T5, (4, 4)), SECOND_TABLE: (4, 4)}, "or with several languages, a text"),
        ({name: (4, 4) for name in QWEN if "norm" not in name}, "a language model of no known"),
        ({"double_blocks.0.img_attn.norm.key_norm.scale": (4,)}, "this is a denoiser of Flux, wh"),
        ({"model.diffusion_model.txt_norm.weight": (4,)}, "this is a denoiser of Qwen-Image, wh"),
        ({"something": (4,)}, "this is a model of no known kind"),
    ],
)
def test_what_we_have_not_is_named(part: Mapping[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileProblem, match=reason):
        inspect_part(written(tmp_path / "other.safetensors", ("", part)))


def test_a_checkpoint_of_another_family_is_named(tmp_path: Path) -> None:
    part = {"cap_embedder.1.weight": (4, 4)}
    path = written(tmp_path / "checkpoint.safetensors", ("model.diffusion_model.", part))
    with pytest.raises(ModelFileProblem, match="this is a checkpoint of Z-Image or Lumina, which"):
        inspect_checkpoint(path)
