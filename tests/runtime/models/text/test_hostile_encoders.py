"""Files that call themselves text encoders and are none: refused in words, at little cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from kit.encoder_files import OWN, Tensors, as_open_clip, loaded
from kit.tiny_text import made
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.runtime.models.checkpoint import read_weights
from nodeloom.runtime.models.embedding_files import Inversions
from nodeloom.runtime.models.headers import inspect_part
from nodeloom.runtime.models.text.part import MAX_LENGTH, encode_texts
from nodeloom.runtime.models.text.pieces import Chunk
from nodeloom.runtime.models.text.t5 import T5Transformer
from nodeloom.runtime.models.text.transformer import Hidden
from nodeloom.runtime.models.weight_files import identify
from safetensors.torch import save_file

T5_BLOCK = "encoder.block.0.layer."
CLIP_TOKENS = "text_model.embeddings.token_embedding.weight"
PROJECTION = "text_projection"
GATE = f"{T5_BLOCK}1.DenseReluDense.wi_1.weight"
IN_PROJECTION = "transformer.resblocks.0.attn.in_proj_"
FEW_BYTES = 20_000_000


def with_odd_heads() -> Tensors:
    """Qwen whose three heads can't share the keys of two."""
    tensors = made(OWN["qwen"])
    for layer in range(3):
        attention = f"model.layers.{layer}.self_attn"
        for matrix, rows in (("q", 3 * 128), ("k", 2 * 128), ("v", 2 * 128)):
            tensors[f"{attention}.{matrix}_proj.weight"] = torch.ones(rows, 128)
        tensors[f"{attention}.o_proj.weight"] = torch.ones(128, 3 * 128)
    return tensors


def buckets(number: int) -> Tensors:
    name = f"{T5_BLOCK}0.SelfAttention.relative_attention_bias.weight"
    return made(OWN["t5"]) | {name: torch.ones(number, 2)}


def own(name: str) -> Tensors:
    return made(OWN[name])


def open_clip(name: str, tensor: torch.Tensor) -> Tensors:
    return as_open_clip(made(OWN["g"])) | {name: tensor}


def refusal(folder: Path, family: str, tensors: Mapping[str, torch.Tensor]) -> str:
    save_file(dict(tensors), folder / "odd.safetensors")
    with pytest.raises(ModelFileProblem) as caught:
        loaded(folder, family, "odd")
    return caught.value.message


@pytest.mark.parametrize(
    ("family", "tensors", "name"),
    [
        ("sd3", made(OWN["t5"]), "encoder.block.{}.x"),
        ("sd15", made(OWN["l"]), "text_model.encoder.layers.{}.x"),
        ("z_image", made(OWN["qwen"]), "model.layers.{}.x"),
    ],
)
@pytest.mark.parametrize("number", ["2000", "9" * 5000])
def test_a_name_alone_makes_no_thousands_of_layers(
    tmp_path: Path, family: str, tensors: Tensors, name: str, number: str
) -> None:
    odd = tensors | {name.format(number): torch.ones(1)}
    assert "more layers than any model has" in refusal(tmp_path, family, odd)


def test_a_tensor_without_numbers_gives_no_width(tmp_path: Path) -> None:
    odd = own("t5") | {"shared.weight": torch.ones(0, 10**7)}
    assert "shared.weight has a wrong shape" in refusal(tmp_path, "sd3", odd)


def test_a_projection_that_isnt_used_takes_no_memory(tmp_path: Path) -> None:
    odd = own("l") | {f"{PROJECTION}.weight": torch.ones(10**13, 0)}
    save_file(odd, tmp_path / "l.safetensors")
    assert loaded(tmp_path, "sd15", "l").num_bytes < FEW_BYTES


@pytest.mark.parametrize(
    ("family", "tensors", "reason"),
    [
        ("sd3", buckets(1), "1 buckets of distances; T5 has 32"),
        ("sd3", buckets(512), "512 buckets of distances; T5 has 32"),
        ("z_image", with_odd_heads(), "its 3 heads can't share the keys of 2"),
        ("sd15", own("l") | {CLIP_TOKENS: torch.ones(10, 64)}, "its vocabulary has 10 entries"),
        ("sdxl", open_clip(f"{IN_PROJECTION}weight", torch.ones(128, 128)), "are missing"),
        ("sdxl", open_clip(f"{IN_PROJECTION}bias", torch.ones(())), "are missing"),
        ("sdxl", open_clip(PROJECTION, torch.ones(1, 2, 3)), "has a wrong shape"),
        (
            "sd3",
            own("t5") | {GATE: made(OWN["t5"])[GATE].to(torch.uint8)},
            r"wi_1.weight is stored as uint8, not in floats",
        ),
    ],
)
def test_shapes_that_would_only_fail_with_a_text_are_refused_at_once(
    tmp_path: Path, family: str, tensors: Tensors, reason: str
) -> None:
    assert reason in refusal(tmp_path, family, tensors)


@pytest.mark.parametrize(
    ("encoder", "name", "table"), [("t5xxl", "t5", "shared.weight"), ("clip_l", "l", CLIP_TOKENS)]
)
def test_validation_refuses_an_encoder_that_isnt_stored_in_floats(
    tmp_path: Path, encoder: str, name: str, table: str
) -> None:
    tensors = made(OWN[name])
    save_file(tensors | {table: tensors[table].to(torch.int8)}, tmp_path / "odd.safetensors")
    with pytest.raises(ModelFileProblem, match=f"its {encoder} is stored as I8, which no model"):
        inspect_part(tmp_path / "odd.safetensors")


class CountedT5(T5Transformer):
    """It tells how many texts of which length run together."""

    sizes: ClassVar[list[tuple[int, ...]]] = []

    def forward(self, ids: torch.Tensor, inversions: Inversions, layer: int | None) -> Hidden:
        self.sizes.append(tuple(ids.shape))
        return super().forward(ids[:, :4], inversions, layer)


@pytest.mark.parametrize(("length", "together"), [(77, 16), (1024, 16), (2304, 4), (MAX_LENGTH, 1)])
def test_long_texts_of_a_batch_take_no_more_memory_than_one(
    tmp_path: Path, length: int, together: int
) -> None:
    save_file(made(OWN["t5"]), tmp_path / "t5.safetensors")
    weights = read_weights(identify(tmp_path / "t5.safetensors"), ("",))
    counted = CountedT5(weights)
    counted.sizes.clear()
    texts = [
        [Chunk(ids=(word, *[0] * (length - 1)), weights=(1.0,) * length, words=(0,) * length)]
        for word in range(17)
    ]
    inversions = Inversions("t5xxl", counted.width, counted.vocabulary)
    encode_texts(counted, texts, inversions, None)
    assert counted.sizes[0] == (together, length)
    assert sum(number for number, _ in counted.sizes) == len(texts)
