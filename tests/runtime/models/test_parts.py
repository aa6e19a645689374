"""Files of one model: recognised by their names, and loaded like the same part of a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from kit.checkpoints import load_model
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.models.headers import (
    DENOISER_PREFIX,
    VAE_PREFIX,
    inspect_part,
    inspect_upscaler,
)
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.text.places import SD15_TEXT_PREFIX
from nodeloom.runtime.models.tiny import write_tiny_sd15
from nodeloom.runtime.values import Conditioning
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]
PREFIXES = {
    Role.DENOISER: DENOISER_PREFIX,
    Role.TEXT_ENCODER: SD15_TEXT_PREFIX,
    Role.VAE: VAE_PREFIX,
}
INPUTS: dict[Role, dict[str, object]] = {
    Role.DENOISER: {
        "x": torch.linspace(-2, 2, 256).reshape(1, 4, 8, 8),
        "sigma": 3.0,
        "context": torch.linspace(-1, 1, 77 * 64).reshape(1, 77, 64),
    },
    Role.TEXT_ENCODER: {"text": "a (red:1.2) fox"},
    Role.VAE: {"samples": torch.linspace(-1, 1, 256).reshape(1, 4, 8, 8)},
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("models") / "tiny.safetensors"
    write_tiny_sd15(path)
    return path


def part_of(checkpoint: Path, role: Role, *, is_prefixed: bool) -> Tensors:
    prefix = PREFIXES[role]
    return {
        name if is_prefixed else name.removeprefix(prefix): tensor
        for name, tensor in load_file(checkpoint).items()
        if name.startswith(prefix)
    }


def load_part(path: Path, dtype: str = "float32") -> Model:
    info = inspect_part(path)
    (role,) = info.roles
    key = ModelKey(role=role, family=info.family, file=info.file, dtype=dtype)
    model = build(ModelRef(key=key))
    expected = model.num_bytes
    model.load("cpu")
    assert 0.99 * expected <= model.num_bytes <= expected + 77 * 8
    return model


def output(model: Model, role: Role) -> torch.Tensor:
    (value,) = model.execute(**INPUTS[role]).values()
    value = value.entries[0].cond if isinstance(value, Conditioning) else value
    assert isinstance(value, torch.Tensor)
    return value


@pytest.mark.parametrize("is_prefixed", [False, True])
@pytest.mark.parametrize("role", PREFIXES)
def test_a_part_s_own_file_gives_what_the_checkpoint_gives(
    checkpoint: Path, tmp_path: Path, role: Role, is_prefixed: bool
) -> None:
    path = tmp_path / "part.safetensors"
    save_file(part_of(checkpoint, role, is_prefixed=is_prefixed), path)
    info = inspect_part(path)
    assert (info.family, info.roles, info.dtype) == ("sd15", frozenset({role}), "float16")
    assert torch.equal(output(load_part(path), role), output(load_model(checkpoint, role), role))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_a_denoiser_of_eight_bits_has_rounded_weights(
    checkpoint: Path, tmp_path: Path, dtype: str
) -> None:
    tensors = part_of(checkpoint, Role.DENOISER, is_prefixed=False)
    path, rounded = tmp_path / "unet.safetensors", tmp_path / "rounded.safetensors"
    save_file(tensors, path)
    eight_bits = getattr(torch, dtype)
    save_file({n: t.to(eight_bits).to(torch.float16) for n, t in tensors.items()}, rounded)
    given = output(load_part(path, dtype), Role.DENOISER)
    assert torch.equal(given, output(load_part(rounded), Role.DENOISER))
    assert not torch.equal(given, output(load_part(path), Role.DENOISER))


def test_a_projection_beside_a_text_encoder_is_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    tensors = part_of(checkpoint, Role.TEXT_ENCODER, is_prefixed=False)
    path = tmp_path / "clip_l.safetensors"
    save_file({**tensors, "text_projection.weight": torch.zeros(64, 64)}, path)
    given = output(load_part(path), Role.TEXT_ENCODER)
    assert torch.equal(given, output(load_model(checkpoint, Role.TEXT_ENCODER), Role.TEXT_ENCODER))


CLIP_LAYER_0 = "text_model.encoder.layers.0.mlp.fc1.weight"
TOKENS = "text_model.embeddings.token_embedding.weight"
FOREIGN: list[Tensors] = [
    {CLIP_LAYER_0: torch.zeros(1), CLIP_LAYER_0.replace(".0.", ".22."): torch.zeros(1)},
    {CLIP_LAYER_0: torch.zeros(1)},
    {"decoder.conv_in.weight": torch.zeros(8, 32, 3, 3)},
    {"input_blocks.0.0.weight": torch.zeros(8, 4, 3, 3), "zero_convs.0.0.weight": torch.zeros(1)},
    {"lora_unet_x.lora_up.weight": torch.zeros(4, 4)},
]


@pytest.mark.parametrize("tensors", FOREIGN, ids=lambda tensors: " ".join(tensors))
def test_other_files_are_none_of_these(tmp_path: Path, tensors: Tensors) -> None:
    path = tmp_path / "other.safetensors"
    save_file(tensors, path)
    assert not roles_of(path) & PREFIXES.keys()


def roles_of(path: Path) -> frozenset[Role]:
    try:
        return inspect_part(path).roles
    except ModelFileProblem:
        return frozenset()


def upscaler(folder: Path) -> Path:
    path = folder / "esrgan.safetensors"
    save_file({"model.0.weight": torch.zeros(16, 3, 3, 3)}, path)
    return path


def test_an_upscaler_is_not_looked_into(tmp_path: Path) -> None:
    info = inspect_upscaler(upscaler(tmp_path))
    assert (info.family, info.roles) == ("upscaler", frozenset({Role.UPSCALER}))


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("4x.pth", lambda path: path.write_bytes(b"PK\x03\x04" * 9), "have to be unpickled"),
        ("4x.safetensors", lambda path: path.write_bytes(b""), "is empty"),
        (
            "4x.safetensors",
            lambda path: save_file({"model.0.weight": torch.zeros(3, dtype=torch.int64)}, path),
            "holds no floating point",
        ),
    ],
)
def test_a_file_that_is_no_upscaler_is_refused(
    tmp_path: Path, name: str, write: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / name
    write(path)
    with pytest.raises(ModelFileProblem, match=reason):
        inspect_upscaler(path)


def test_without_spandrel_an_upscaler_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "spandrel", None)  # an import of it fails
    info = inspect_upscaler(upscaler(tmp_path))
    key = ModelKey(role=Role.UPSCALER, family=info.family, file=info.file, dtype="float32")
    with pytest.raises(NodeFailed, match=r"pip install 'nodeloom\[upscale\]'"):
        build(ModelRef(key=key)).load("cpu")
