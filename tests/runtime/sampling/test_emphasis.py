"""Weighted encoding against ComfyUI's, on a small random CLIP-L."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kit.goldens import Tensors, each_golden_set, load_json
from nodeloom.runtime.models.clip_tokenizer import ClipTokenizer
from nodeloom.runtime.models.text.pieces import Chunk
from nodeloom.runtime.sampling.emphasis import has_weights, weigh


@pytest.fixture
def encoder(golden_set: str) -> Any:
    """transformers' class on the recorded weights; its token table follows a formula."""
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    config = CLIPTextConfig(**load_json(golden_set, "clip.json")["configs"]["clip_l"])
    weights = Tensors(golden_set, "clip_weights.safetensors")
    tensors = {
        key.removeprefix("clip_l."): weights[key].float()
        for key in weights.keys
        if key.startswith("clip_l.")
    }
    rows = torch.arange(config.vocab_size, dtype=torch.float64)[:, None]
    columns = torch.arange(config.hidden_size, dtype=torch.float64)[None, :]
    table = 0.08 * torch.sin(0.001 * (rows + 1) * (2 * columns + 3))
    tensors["text_model.embeddings.token_embedding.weight"] = table.float()
    model = CLIPTextModelWithProjection(config)
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert all("position_ids" in name for name in missing)
    return model.eval()


def encode(encoder: Any, chunks: list[Chunk]) -> torch.Tensor:
    with torch.no_grad():
        out: torch.Tensor = encoder(
            input_ids=torch.tensor([chunk.ids for chunk in chunks])
        ).last_hidden_state
    return out


@each_golden_set
def test_weighted_encodings(golden_set: str, encoder: Any) -> None:
    recorded = Tensors(golden_set, "clip.safetensors")
    texts = load_json(golden_set, "clip.json")["prompts"]
    names = [name for name in texts if f"sd15/skipnone/{name}/cond" in recorded.keys]
    names = [name for name in names if "embed" not in name]
    assert len(names) >= 10
    tokenizer = ClipTokenizer()
    empty = encode(encoder, tokenizer.chunks(""))[0]
    for name in names:
        chunks = tokenizer.chunks(texts[name])
        weights = [list(chunk.weights) for chunk in chunks]
        ours = weigh(encode(encoder, chunks), empty, weights)
        theirs = recorded[f"sd15/skipnone/{name}/cond"]
        assert ours.shape == theirs.shape
        limit = 1e-3 if name == "number_forms" else 1e-4
        assert (ours - theirs).abs().max().item() <= limit, name


def test_tokens_of_weight_one_are_untouched() -> None:
    hidden, empty = torch.randn(2, 77, 5), torch.randn(77, 5)
    weights = [[1.0] * 77, [1.0] * 76 + [0.3]]
    ours = weigh(hidden, empty, weights)
    assert torch.equal(ours[0, :153], hidden.reshape(154, 5)[:153])
    assert torch.allclose(ours[0, 153], empty[76] + (hidden[1, 76] - empty[76]) * 0.3)
    assert has_weights(weights)
    assert not has_weights([[1.0] * 77])
