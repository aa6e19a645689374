"""The small text encoders of the goldens, and what their recorded runs ask of ours."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from nodeloom.graph_import.handles import CLIP_LAYER, FileIdentity, ModelKey, ModelRef, Role
from nodeloom.graph_import.text_encoders import CLIP_G, CLIP_L, QWEN3_4B, T5XXL
from nodeloom.runtime.models.checkpoint import Weights
from nodeloom.runtime.models.embedding_files import Inversions
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.text.clip import ClipTransformer, ClipUse, G, L
from nodeloom.runtime.models.text.family_encoder import FamilyTextEncoder
from nodeloom.runtime.models.text.family_tokenizers import tokenizers
from nodeloom.runtime.models.text.part import Encoded, encode_texts
from nodeloom.runtime.models.text.places import CLIP_TOKENS, QWEN_TOKENS, T5_TOKENS, TEXT_LEVEL
from nodeloom.runtime.models.text.qwen3 import QwenTransformer
from nodeloom.runtime.models.text.t5 import T5Transformer
from nodeloom.runtime.models.text.transformer import Transformer
from nodeloom.runtime.values import CondEntry, Conditioning

NOWHERE = FileIdentity(path="clip_weights.safetensors", size_bytes=0, mtime_ns=0)
# Recorded models: our family, and which of its encoders they have.
MODELS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "sd15": ("sd15", (CLIP_L,)),
    "sdxl": ("sdxl", (CLIP_L, CLIP_G)),
    "sdxl_refiner": ("sdxl", (CLIP_G,)),
    "sd3_lg": ("sd3", (CLIP_L, CLIP_G)),
    "flux": ("flux", (CLIP_L, T5XXL)),
    "z_image": ("z_image", (QWEN3_4B,)),
}
# Recorded parts: their family, encoder, and whether T5 doesn't look at padding.
PARTS = {
    "sd3_l": ("sd3", CLIP_L, False),
    "sd3_t5": ("sd3", T5XXL, False),
    "t5_masked": ("sd3", T5XXL, True),
}
_PREFIXES = {CLIP_L: "clip_l.", CLIP_G: "clip_g.", T5XXL: "t5.", QWEN3_4B: "qwen3."}
_TOKENS = {
    CLIP_L: TEXT_LEVEL + CLIP_TOKENS,
    CLIP_G: TEXT_LEVEL + CLIP_TOKENS,
    T5XXL: T5_TOKENS,
    QWEN3_4B: QWEN_TOKENS,
}
_CONFIGS = {CLIP_L: "clip_l", CLIP_G: "clip_g", T5XXL: "t5", QWEN3_4B: "qwen3"}


class SmallEncoders:
    """Transformers with the recorded weights, which count as they are."""

    def __init__(self, recorded: Mapping[str, torch.Tensor], clip: Mapping[str, Any]) -> None:
        self._recorded = recorded
        self.configs: Mapping[str, Any] = clip["configs"]
        self.prompts: Mapping[str, str] = clip["prompts"]
        self._transformers: dict[object, Transformer] = {}

    def family(self, model: str) -> FamilyTextEncoder:
        """A text encoder of ours with the encoders that a recorded model has."""
        family, encoders = MODELS[model]
        key = ModelKey(role=Role.TEXT_ENCODER, family=family, file=NOWHERE, dtype="float16")
        made = build(ModelRef(key=key))
        assert isinstance(made, FamilyTextEncoder)
        made.transformers = {
            encoder: self.transformer(encoder, made.clip_uses.get(encoder)) for encoder in encoders
        }
        return made

    def transformer(
        self, encoder: str, use: ClipUse | None = None, *, is_masked: bool = False
    ) -> Transformer:
        """A transformer, made once."""
        made = self._transformers.get((encoder, use, is_masked))
        if made is None:
            made = self._make(encoder, use or ClipUse(), is_masked)
            self._transformers[encoder, use, is_masked] = made
        return made

    def _make(self, encoder: str, use: ClipUse, is_masked: bool) -> Transformer:
        weights = self._weights(encoder)
        if encoder == T5XXL:
            return T5Transformer(weights, is_masked=is_masked)
        if encoder == QWEN3_4B:
            return QwenTransformer(weights)
        config = self.configs[encoder]
        width = config["hidden_size"] // config["num_attention_heads"]
        kind = msgspec.structs.replace(L if encoder == CLIP_L else G, head_width=width, stored=None)
        return ClipTransformer(weights, kind, use)

    def _weights(self, encoder: str) -> Weights:
        prefix, config = _PREFIXES[encoder], self.configs[_CONFIGS[encoder]]
        tensors = {
            name.removeprefix(prefix): tensor.float()
            for name, tensor in self._recorded.items()
            if name.startswith(prefix)
        }
        width = config["hidden_size"] if "hidden_size" in config else config["d_model"]
        rows = torch.arange(config["vocab_size"], dtype=torch.float64)[:, None]
        columns = torch.arange(width, dtype=torch.float64)[None, :]
        table = 0.08 * torch.sin(0.001 * (rows + 1) * (2 * columns + 3))
        tensors[_TOKENS[encoder]] = table.float()
        return Weights(file=NOWHERE, prefix="", tensors=tensors)


def run(
    encoder: FamilyTextEncoder,
    text: str,
    files: Mapping[str, FileIdentity],
    layer: int | None = None,
    **more: object,
) -> CondEntry:
    """What a text encoder gives for one text with whichever of the embeddings it names."""
    files = {name: file for name, file in files.items() if f"embedding:{name}" in text}
    options = () if layer is None else ((CLIP_LAYER, layer),)
    encoder.ref = ModelRef(key=encoder.ref.key, options=options)
    given = encoder.execute(text=text, embeddings=files, **more)["conditioning"]
    assert isinstance(given, Conditioning)
    (entry,) = given.entries
    return entry


def run_part(
    encoders: SmallEncoders,
    part: str,
    text: str,
    files: Mapping[str, FileIdentity],
) -> Encoded:
    """What one encoder gives for a text, as its family's tokenizer cuts it."""
    family, encoder, is_masked = PARTS[part]
    uses = encoders.family("sd3_lg").clip_uses
    transformer = encoders.transformer(encoder, uses.get(encoder), is_masked=is_masked)
    inversions = Inversions(encoder, transformer.width, transformer.vocabulary)
    ids = {name: inversions.ids(file) for name, file in files.items()} if encoder == CLIP_L else {}
    chunks = tokenizers(family)[encoder].chunks(text, ids)
    return encode_texts(transformer, [chunks], inversions, None)[0]


def run_bare(encoders: SmallEncoders, case: str, text: str, *, is_plain: bool = False) -> Encoded:
    """CLIP-L at a layer, `hidden-2_norm1_proj1`: what a family may ask of it.

    A layer is counted from the end, or the first one's output is 0; `all` gives every layer's,
    without the text's weights.
    """
    layer, norm, projection = case.split("_")
    is_normed, is_projected = norm == "norm1", projection == "proj1"
    num_layers = encoders.configs[CLIP_L]["num_hidden_layers"]
    if layer == "all":
        each = [
            run_bare(encoders, f"hidden{number}_{norm}_{projection}", text, is_plain=True)
            for number in range(num_layers)
        ]
        return torch.stack([cond for cond, _ in each], dim=1), each[0][1]
    number = -1 if layer == "last" else int(layer.removeprefix("hidden"))
    if number >= 0:
        number -= num_layers
    use = ClipUse(layer=number, is_normed=is_normed, is_projected=is_projected)
    transformer = encoders.transformer(CLIP_L, use)
    inversions = Inversions(CLIP_L, transformer.width, transformer.vocabulary)
    chunks = tokenizers("sd15")[CLIP_L].chunks(text)
    if is_plain:
        ones = [(1.0,) * len(chunk.weights) for chunk in chunks]
        chunks = [
            msgspec.structs.replace(chunk, weights=weights)
            for chunk, weights in zip(chunks, ones, strict=True)
        ]
    return encode_texts(transformer, [chunks], inversions, None)[0]


def largest_error(ours: torch.Tensor, recorded: torch.Tensor) -> float:
    """Over the recorded channels; what ours has beyond them must be zeros."""
    width = recorded.shape[-1]
    if ours.shape[:-1] != recorded.shape[:-1] or ours.shape[-1] < width:
        return math.inf
    if ours[..., width:].any():
        return math.inf
    return float((ours[..., :width] - recorded).abs().max())
