"""The text encoder: CLIP's, as our runtime runs it, over the few words that captions have.

Only the vectors of those words are trained; in the file all others of CLIP's vocabulary are zeros.
So that a word which the model doesn't know changes little, captions get unknown words at random.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from nodeloom.runtime.models.clip_tokenizer import BEGIN_ID, CHUNK_LENGTH, END_ID, ClipTokenizer

from .scenes import BACKGROUNDS, COLOURS, RADII, SHAPES

WIDTH: Final = 64
CONFIG: Final[dict[str, Any]] = {
    "hidden_size": WIDTH,
    "projection_dim": WIDTH,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 1,
    "max_position_embeddings": CHUNK_LENGTH,
    "hidden_act": "quick_gelu",
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0),  # not looked at here
}
VOCABULARY: Final = 49408
# Every word of a caption, with what a comma and an empty text are.
WORDS: Final = (
    *("a", "an", "and", ",", "on", "the", "at", "in", "background", "sky", "two", "three"),
    *("left", "right", "top", "bottom", *RADII),
    *(*COLOURS, *BACKGROUNDS, *SHAPES),
    *(f"{shape}s" for shape in SHAPES),
    "crosses",
)
# Words that get a copy of another's vector in the file.
SYNONYMS: Final = {
    "gray": "grey",
    "large": "big",
    "huge": "big",
    "little": "small",
    "tiny": "small",
    "violet": "purple",
    "disc": "circle",
    "ball": "circle",
    "ocean": "sea",
    "field": "meadow",
    "plus": "cross",
}
TOKEN_STD: Final = 0.4
POSITION_STD: Final = 0.1
UNKNOWN_SHARE: Final = 0.06  # of captions that get unknown words


class Vocabulary:
    """The tokens that are trained, and their rows; row 0 stands for every other token."""

    def __init__(self) -> None:
        self._tokenizer = ClipTokenizer()
        known = {BEGIN_ID, END_ID}
        for word in WORDS:
            known.update(self.ids(word))
        self.tokens = tuple(sorted(known))
        self._rows = {token: row for row, token in enumerate(self.tokens, start=1)}

    def ids(self, text: str) -> tuple[int, ...]:
        """The 77 token ids of a text's first chunk."""
        return self._tokenizer.chunks(text)[0].ids

    def rows(self, texts: Iterable[str], rng: np.random.Generator | None = None) -> torch.Tensor:
        """Rows [B, 77] of texts; with `rng` some of them get unknown words."""
        found = [[self._rows.get(token, 0) for token in self.ids(text)] for text in texts]
        if rng is not None:
            found = [_with_unknown(rows, rng) for rows in found]
        return torch.tensor(found)


def _with_unknown(rows: list[int], rng: np.random.Generator) -> list[int]:
    if rng.random() >= UNKNOWN_SHARE:
        return rows
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(1, 8))
        rows = [*rows[:place], 0, *rows[place:-1]]
    return rows


class TextEncoder(torch.nn.Module):
    """Rows of a vocabulary [B, 77] to conditioning [B, 77, 64], as the runtime computes it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from transformers import CLIPTextConfig, CLIPTextModelWithProjection

        super().__init__()
        config = CLIPTextConfig(vocab_size=len(vocabulary.tokens) + 1, **CONFIG)
        self.module: Any = CLIPTextModelWithProjection(config).text_model
        embeddings = self.module.embeddings
        table = torch.nn.Embedding(config.vocab_size, WIDTH, padding_idx=0)
        with torch.no_grad():
            table.weight[1:].normal_(std=TOKEN_STD)
            embeddings.position_embedding.weight.normal_(std=POSITION_STD)
        embeddings.token_embedding = table
        future = torch.full((CHUNK_LENGTH, CHUNK_LENGTH), -torch.inf).triu(1)
        self.register_buffer("future", future[None, None], persistent=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.encode(self.module.embeddings.token_embedding(rows))

    def encode(self, embedded: torch.Tensor) -> torch.Tensor:
        """Token vectors [B, 77, 64] to conditioning."""
        states = self.module.embeddings(inputs_embeds=embedded)
        for layer in self.module.encoder.layers:
            states = layer(states, attention_mask=self.future)
        conditioning: torch.Tensor = self.module.final_layer_norm(states)
        return conditioning


def whole_table(vocabulary: Vocabulary, table: torch.Tensor) -> torch.Tensor:
    """The vectors of CLIP's whole vocabulary [49408, 64] from those of the trained rows."""
    whole = torch.zeros(VOCABULARY, table.shape[1])
    whole[list(vocabulary.tokens)] = table[1:]
    for word, known in SYNONYMS.items():
        copy, original = _only(vocabulary.ids(word)), _only(vocabulary.ids(known))
        whole[copy] = whole[original]
    return whole


def _only(ids: Sequence[int]) -> int:
    """The one token of a word."""
    if ids[2] != END_ID:
        raise ValueError("the word has more than one token")
    return ids[1]


def load_text(trained: Mapping[str, torch.Tensor], vocabulary: Vocabulary) -> TextEncoder:
    """The encoder with these weights, frozen."""
    encoder = TextEncoder(vocabulary)
    encoder.load_state_dict(dict(trained))
    encoder.requires_grad_(False)
    return encoder
