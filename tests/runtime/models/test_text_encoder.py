"""Layers and embeddings of the text encoder against ComfyUI's, on a small random CLIP-L."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kit.goldens import Tensors, each_golden_set, golden_folder, load_json
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.graph_import.handles import CLIP_LAYER, FileIdentity, ModelKey, ModelRef, Role
from nodeloom.runtime.models.sd15 import text_encoder
from nodeloom.runtime.models.sd15.text_encoder import TextEncoder
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.values import Conditioning
from safetensors.torch import save_file

EMBEDDINGS = ("gold_small", "gold_small_l")
LIMIT = 1e-4
HEAVY_LIMIT = 1e-3  # of weights around 10


@pytest.fixture
def encoder(golden_set: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TextEncoder:
    """Ours on the recorded weights, which have narrow heads and count as they are."""
    monkeypatch.setattr(text_encoder, "HEAD_WIDTH", 16)
    monkeypatch.setattr(text_encoder, "STORED", torch.float32)
    recorded = Tensors(golden_set, "clip_weights.safetensors")
    tensors = {
        name.removeprefix("clip_l."): recorded[name].float()
        for name in recorded.keys
        if name.startswith("clip_l.")
    }
    config = load_json(golden_set, "clip.json")["configs"]["clip_l"]
    rows = torch.arange(config["vocab_size"], dtype=torch.float64)[:, None]
    columns = torch.arange(config["hidden_size"], dtype=torch.float64)[None, :]
    table = 0.08 * torch.sin(0.001 * (rows + 1) * (2 * columns + 3))
    tensors["text_model.embeddings.token_embedding.weight"] = table.float()
    path = tmp_path / "clip_l.safetensors"
    save_file(tensors, path)
    key = ModelKey(role=Role.TEXT_ENCODER, family="sd15", file=identify(path), dtype="float16")
    loaded = TextEncoder(ModelRef(key=key))
    loaded.load("cpu")
    return loaded


def embeddings(golden_set: str) -> dict[str, FileIdentity]:
    folder = golden_folder(golden_set) / "embeddings"
    return {name: identify(folder / f"{name}.safetensors") for name in EMBEDDINGS}


def encode(
    encoder: TextEncoder, text: str, files: dict[str, FileIdentity], layer: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    options = () if layer is None else ((CLIP_LAYER, layer),)
    encoder.ref = ModelRef(key=encoder.ref.key, options=options)
    given = encoder.execute(text=text, embeddings=files)["conditioning"]
    assert isinstance(given, Conditioning)
    (entry,) = given.entries
    assert entry.pooled is not None
    return entry.cond, entry.pooled


@each_golden_set
def test_every_layer_and_embedding_encodes_as_comfyui_encodes_it(
    golden_set: str, encoder: TextEncoder
) -> None:
    recorded = Tensors(golden_set, "clip.safetensors")
    texts = load_json(golden_set, "clip.json")["prompts"]
    files = embeddings(golden_set)
    runs = [run for run in load_json(golden_set, "clip.json")["runs"] if run.startswith("sd15/")]
    assert len([run for run in runs if "/skip-2/" in run]) >= 4
    assert len([run for run in runs if "embed" in run]) >= 4
    for run in runs:
        _, layer, name = run.split("/")
        number = None if layer == "skipnone" else int(layer.removeprefix("skip"))
        cond, pooled = encode(encoder, texts[name], files, number)
        limit = HEAVY_LIMIT if name == "number_forms" else LIMIT
        assert cond.shape == recorded[f"{run}/cond"].shape
        assert (cond - recorded[f"{run}/cond"]).abs().max() <= limit, run
        assert (pooled - recorded[f"{run}/pooled_output"]).abs().max() <= limit, run


@pytest.mark.parametrize("golden_set", ["kept"])
def test_texts_with_embeddings_share_forwards(golden_set: str, encoder: TextEncoder) -> None:
    files = embeddings(golden_set)
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


@pytest.mark.parametrize("golden_set", ["kept"])
def test_a_layer_beyond_the_first_is_the_last(golden_set: str, encoder: TextEncoder) -> None:
    last, _ = encode(encoder, "a cat", {})
    assert torch.equal(encode(encoder, "a cat", {}, -5)[0], last)
    assert not torch.equal(encode(encoder, "a cat", {}, -4)[0], last)


@pytest.mark.parametrize("golden_set", ["kept"])
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
    golden_set: str,
    encoder: TextEncoder,
    tmp_path: Path,
    tensors: dict[str, torch.Tensor],
    reason: str,
) -> None:
    path = tmp_path / "style.safetensors"
    save_file(tensors, path)
    with pytest.raises(ModelFileProblem, match=reason) as caught:
        encode(encoder, "embedding:style", {"style": identify(path)})
    assert str(path) in caught.value.message


@pytest.mark.parametrize("golden_set", ["kept"])
@pytest.mark.parametrize("name", ["emb_params", "clip_l", "*"])
def test_the_vectors_may_have_any_of_these_names(
    golden_set: str, encoder: TextEncoder, tmp_path: Path, name: str
) -> None:
    vector = torch.linspace(-1, 1, 64)
    path = tmp_path / "style.safetensors"
    more = {"clip_g": torch.zeros(1, 96)} if name == "clip_l" else {}
    save_file({name: vector.half(), **more}, path)
    styled, _ = encode(encoder, "embedding:style", {"style": identify(path)})
    other, _ = encode(encoder, "cat", {})
    assert (styled - other).abs().max() > 1e-2


@pytest.mark.parametrize("golden_set", ["kept"])
def test_an_embedding_that_was_changed_is_refused(
    golden_set: str, encoder: TextEncoder, tmp_path: Path
) -> None:
    path = tmp_path / "style.safetensors"
    save_file({"emb_params": torch.zeros(1, 64)}, path)
    file = identify(path)
    save_file({"emb_params": torch.zeros(2, 64)}, path)
    with pytest.raises(ModelFileProblem, match="was changed"):
        encode(encoder, "embedding:style", {"style": file})
