"""CLIP-L as SD1.5's text encoder: a text to conditioning.

The last layer after the final norm; the pooled vector is that of the first chunk's end token,
unprojected. Source: design notes on models, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import torch

from ....graph_import import types
from ....graph_import.model import Model
from ...sampling.emphasis import has_weights, weigh
from ...values import CondEntry, Conditioning
from ..checkpoint import (
    Check,
    Weights,
    build_module,
    count_bytes,
    estimate_bytes,
    no_check,
    read_weights,
)
from ..clip_tokenizer import BEGIN_ID, CHUNK_LENGTH, END_ID, Chunk, ClipTokenizer
from ..headers import CLIP_TOKENS, SD15_TEXT_PREFIX

CHUNKS_PER_FORWARD: Final = 16  # bounds the memory that a long text takes
HEAD_WIDTH: Final = 64

Encoded = tuple[torch.Tensor, torch.Tensor]  # hidden states [77, width] and pooled [width]


class TextEncoder(Model):
    """Input: text. Output: conditioning of one entry, cond float32 [1, n * 77, width]."""

    _num_bytes: int | None = None

    def setup_io(self) -> None:
        self.add_input("text", types.STRING)
        self.add_output("conditioning", types.CONDITIONING)

    def load(self, device: str, check: Check = no_check) -> None:
        """Read the encoder. Its weights count as float16, its arithmetic is float32.

        That rounding is part of the picture: leaving it out costs 2e-3 of the conditioning.
        """
        from transformers import CLIPTextConfig, CLIPTextModelWithProjection

        weights = read_weights(
            self.ref.key.file, (SD15_TEXT_PREFIX + "text_model.", SD15_TEXT_PREFIX), check
        )
        config = CLIPTextConfig(**text_config(weights))
        renamed = {f"text_model.{name}": tensor for name, tensor in weights.tensors.items()}
        # Only the projected embedding, which SD1.5 doesn't use, needs this matrix.
        renamed["text_projection.weight"] = torch.eye(config.hidden_size)
        whole = build_module(
            lambda: CLIPTextModelWithProjection(config),
            weights,
            renamed,
            dtype=torch.float32,
            stored=torch.float16,
            device=device,
            check=check,
        )
        self._module = whole.text_model
        self._device = device
        self._tokenizer = ClipTokenizer()
        self._num_bytes = count_bytes(self._module)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights; before they are loaded, what the file's header lets expect."""
        if self._num_bytes is None:
            return estimate_bytes(self.ref.key.file, (SD15_TEXT_PREFIX,))
        return self._num_bytes

    def execute(self, **inputs: object) -> Mapping[str, object]:
        return self.execute_batch([inputs])[0]

    def execute_batch(self, calls: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Encode the texts; chunks that occur several times run once.

        Raises: NodeFailed: a text is longer than the tokenizer allows.
        """
        texts = [self._tokenizer.chunks(cast(str, call["text"])) for call in calls]
        wanted = dict.fromkeys(chunk.ids for chunks in texts for chunk in chunks)
        empty = self._tokenizer.chunks("")[0].ids
        if any(has_weights(_weights(chunks)) for chunks in texts):
            wanted[empty] = None
        encoded = self._encode(list(wanted))
        return [{"conditioning": _condition(chunks, encoded, empty)} for chunks in texts]

    @torch.no_grad()
    def _encode(self, wanted: list[tuple[int, ...]]) -> dict[tuple[int, ...], Encoded]:
        encoded: dict[tuple[int, ...], Encoded] = {}
        for start in range(0, len(wanted), CHUNKS_PER_FORWARD):
            group = wanted[start : start + CHUNKS_PER_FORWARD]
            output = self._module(input_ids=torch.tensor(group, device=self._device))
            hidden = output.last_hidden_state.to("cpu", torch.float32)
            pooled = output.pooler_output.to("cpu", torch.float32)
            for ids, states, vector in zip(group, hidden, pooled, strict=True):
                encoded[ids] = (states, vector)
        return encoded


def text_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `CLIPTextConfig`, from shapes."""
    vocabulary, width = weights.shape(CLIP_TOKENS, 2)
    inner = weights.shape("encoder.layers.0.mlp.fc1.weight", 2)[0]
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "projection_dim": width,
        "intermediate_size": inner,
        "num_hidden_layers": weights.count(r"encoder\.layers\.(\d+)\."),
        "num_attention_heads": max(1, width // HEAD_WIDTH),
        "max_position_embeddings": CHUNK_LENGTH,
        "hidden_act": "quick_gelu",
        "bos_token_id": BEGIN_ID,
        "eos_token_id": END_ID,
        "pad_token_id": END_ID,
    }


def _weights(chunks: Sequence[Chunk]) -> list[tuple[float, ...]]:
    return [chunk.weights for chunk in chunks]


def _condition(
    chunks: Sequence[Chunk],
    encoded: Mapping[tuple[int, ...], Encoded],
    empty: tuple[int, ...],
) -> Conditioning:
    hidden = torch.stack([encoded[chunk.ids][0] for chunk in chunks])
    first, pooled = encoded[chunks[0].ids]
    # Where no text has weights the empty one wasn't encoded, and `weigh` doesn't look at it.
    unmoved = encoded[empty][0] if empty in encoded else first
    cond = weigh(hidden, unmoved, _weights(chunks))
    return Conditioning(entries=(CondEntry(cond=cond, pooled=pooled[None].clone()),))
