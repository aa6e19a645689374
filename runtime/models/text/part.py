"""One encoder of a text encoder: a tokenizer, a transformer, and what a text's weights do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import torch

from ...errors import NodeFailed
from ...sampling.emphasis import has_weights, weigh
from ..embedding_files import Inversions
from .pieces import Chunk
from .transformer import Transformer

CHUNKS_PER_FORWARD: Final = 16  # at most, of CLIP's length
MAX_LENGTH: Final = 4608  # of a chunk with its padding: T5-XXL's attention to it takes 5 GB
MAX_PAIRS: Final = MAX_LENGTH**2  # of tokens in one forward, which bounds its memory

Ids = tuple[int, ...]
Encoded = tuple[torch.Tensor, torch.Tensor | None]  # cond [1, tokens, width], pooled [1, width]


@torch.no_grad()
def encode_texts(
    transformer: Transformer,
    texts: Sequence[Sequence[Chunk]],
    inversions: Inversions,
    layer: int | None,
) -> list[Encoded]:
    """Texts of at least one chunk each to vectors, float32; chunks that recur run once.

    Each chunk is encoded on its own, and its tokens are weighed against the empty text's of the
    same length; the pooled vector is the first chunk's, without weights.
    Raises: NodeFailed: a chunk is longer than MAX_LENGTH.
    """
    longest = max((len(chunk.ids) for chunks in texts for chunk in chunks), default=0)
    if longest > MAX_LENGTH:
        raise NodeFailed(
            f"the text has {longest} tokens with its padding; {MAX_LENGTH} are possible",
            limit=MAX_LENGTH,
        )
    wanted = dict.fromkeys(chunk.ids for chunks in texts for chunk in chunks)
    for chunks in texts:
        if has_weights(_weights(chunks)):
            wanted.update(dict.fromkeys(transformer.empty(len(chunk.ids)) for chunk in chunks))
    encoded = _forward(transformer, wanted, inversions, layer)
    return [_weighed(transformer, chunks, encoded) for chunks in texts]


def _forward(
    transformer: Transformer, wanted: Iterable[Ids], inversions: Inversions, layer: int | None
) -> dict[Ids, Encoded]:
    """Each chunk's vectors [length, width] and pooled one [width]; equal lengths run together."""
    by_length: dict[int, list[Ids]] = {}
    for ids in wanted:
        by_length.setdefault(len(ids), []).append(ids)
    encoded: dict[Ids, Encoded] = {}
    for length, chunks in by_length.items():
        together = min(CHUNKS_PER_FORWARD, MAX_PAIRS // length**2)
        for start in range(0, len(chunks), together):
            group = chunks[start : start + together]
            hidden, pooled = transformer.forward(torch.tensor(group), inversions, layer)
            for index, ids in enumerate(group):
                encoded[ids] = (hidden[index], None if pooled is None else pooled[index])
    return encoded


def _weighed(
    transformer: Transformer, chunks: Sequence[Chunk], encoded: Mapping[Ids, Encoded]
) -> Encoded:
    first, pooled = encoded[chunks[0].ids]
    weights = _weights(chunks)
    hidden = torch.stack([encoded[chunk.ids][0] for chunk in chunks])
    # Where no text has weights the empty one wasn't encoded, and `weigh` doesn't look at it.
    empty = encoded[transformer.empty(len(first))][0] if has_weights(weights) else first
    return weigh(hidden, empty, weights), None if pooled is None else pooled[None].clone()


def _weights(chunks: Sequence[Chunk]) -> list[tuple[float, ...]]:
    return [chunk.weights for chunk in chunks]
