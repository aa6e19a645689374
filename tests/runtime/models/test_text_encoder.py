"""Embeddings and layers of SD1.5's text encoder, on the small recorded CLIP-L."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from kit.goldens import KEPT
from kit.small_encoders import SmallEncoders, run
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import FileIdentity
from nodeloom.runtime.models.text.family_encoder import FamilyTextEncoder
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.values import Conditioning
from safetensors.torch import load_file, save_file

EMBEDDINGS = ("gold_small", "gold_small_l")


@pytest.fixture(scope="module")
def encoder() -> FamilyTextEncoder:
    """Ours on the recorded weights, which count as they are."""
    small = SmallEncoders(load_file(KEPT / "clip_weights.safetensors"), clip_json())
    return small.family("sd15")


@pytest.fixture
def files() -> dict[str, FileIdentity]:
    return {name: identify(KEPT / "embeddings" / f"{name}.safetensors") for name in EMBEDDINGS}


def clip_json() -> Any:
    return json.loads((KEPT / "clip.json").read_text("utf-8"))


def encode(
    encoder: FamilyTextEncoder, text: str, files: dict[str, FileIdentity], layer: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    entry = run(encoder, text, files, layer)
    assert entry.pooled is not None
    return entry.cond, entry.pooled


def test_texts_with_embeddings_share_forwards(
    encoder: FamilyTextEncoder, files: dict[str, FileIdentity]
) -> None:
    texts = [
        "a embedding:gold_small cat",
        "embedding:gold_small_l",
        "a cat",
        "embedding:gold_none x",
    ]
    given = encoder.execute_batch([{"text": text, "embeddings": files} for text in texts])
    for text, together in zip(texts, given, strict=True):
        conditioning = together["conditioning"]
        assert isinstance(conditioning, Conditioning)
        alone, _ = encode(encoder, text, files)
        assert torch.allclose(conditioning.entries[0].cond, alone, atol=1e-5)
    unknown, _ = encode(encoder, texts[3], files)
    assert torch.equal(unknown, encode(encoder, "x", {})[0])


def test_a_layer_beyond_the_first_is_the_last(encoder: FamilyTextEncoder) -> None:
    last, _ = encode(encoder, "a cat", {})
    assert torch.equal(encode(encoder, "a cat", {}, -5)[0], last)
    assert not torch.equal(encode(encoder, "a cat", {}, -4)[0], last)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"emb_params": torch.zeros(2, 32)}, "takes 64 wide ones"),
        ({"emb_params": torch.zeros(1, 2, 64)}, "takes 64 wide ones"),
        ({"emb_params": torch.zeros(0, 64)}, "0 vectors"),
        ({"emb_params": torch.zeros(5000, 64)}, "5000 vectors"),
        ({"clip_g": torch.zeros(2, 64), "t5": torch.zeros(2, 64)}, "holds no clip_l"),
    ],
)
def test_a_file_of_other_vectors_is_refused(
    encoder: FamilyTextEncoder,
    tmp_path: Path,
    tensors: dict[str, torch.Tensor],
    reason: str,
) -> None:
    path = tmp_path / "style.safetensors"
    save_file(tensors, path)
    with pytest.raises(ModelFileProblem, match=reason) as caught:
        encode(encoder, "embedding:style", {"style": identify(path)})
    assert str(path) in caught.value.message


@pytest.mark.parametrize("name", ["emb_params", "clip_l", "*"])
def test_the_vectors_may_have_any_of_these_names(
    encoder: FamilyTextEncoder, tmp_path: Path, name: str
) -> None:
    vector = torch.linspace(-1, 1, 64)
    path = tmp_path / "style.safetensors"
    more = {"clip_g": torch.zeros(1, 96)} if name == "clip_l" else {}
    save_file({name: vector.half(), **more}, path)
    styled, _ = encode(encoder, "embedding:style", {"style": identify(path)})
    other, _ = encode(encoder, "cat", {})
    assert (styled - other).abs().max() > 1e-2


def test_an_embedding_that_was_changed_is_refused(
    encoder: FamilyTextEncoder, tmp_path: Path
) -> None:
    path = tmp_path / "style.safetensors"
    save_file({"emb_params": torch.zeros(1, 64)}, path)
    file = identify(path)
    save_file({"emb_params": torch.zeros(2, 64)}, path)
    with pytest.raises(ModelFileProblem, match="was changed"):
        encode(encoder, "embedding:style", {"style": file})
