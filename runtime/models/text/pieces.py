"""What a text becomes before it is cut into chunks: runs of token ids under one weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from ....graph_import.prompt_text import (
    Part,
    parse_weights,
    split_embeddings,
    unweighted,
    without_commas,
)
from ...errors import NodeFailed

MAX_TEXT_CHARS: Final = 100_000
NO_EMBEDDINGS: Final[Mapping[str, Sequence[int]]] = MappingProxyType({})

Encode = Callable[[str], Sequence[int]]


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of an encoder takes: token ids, with begin, end and padding.

    `weights` has one number per id, 1.0 where the text gives none; `words` says which piece of the
    text an id is of, counted from 1 in the whole text, 0 for what stands around it.
    """

    ids: tuple[int, ...]
    weights: tuple[float, ...]
    words: tuple[int, ...]


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Ids that are kept together where there is room: words, or an embedding's vectors."""

    ids: tuple[int, ...]
    weight: float


def pieces(
    text: str, encode: Encode, embeddings: Mapping[str, Sequence[int]], *, is_weighted: bool = True
) -> Iterator[Piece]:
    """The pieces of a text in order.

    Args:
        encode: words to ids.
        embeddings: what stands for `embedding:name`, by name: ids beyond the vocabulary, one per
            vector. A name that isn't there is left out.
        is_weighted: parentheses are weights; else they are text.
    Raises: NodeFailed: the text is longer than MAX_TEXT_CHARS.
    """
    check_length(text)
    for segment in parse_weights(text) if is_weighted else [unweighted(text)]:
        for part in split_embeddings(segment.text):
            for ids in _ids(part, encode, embeddings):
                yield Piece(ids=tuple(ids), weight=segment.weight)


def check_length(text: str) -> None:
    """Raises: NodeFailed: the text is longer than MAX_TEXT_CHARS."""
    if len(text) > MAX_TEXT_CHARS:
        raise NodeFailed(
            f"the text has {len(text)} characters; {MAX_TEXT_CHARS} are possible",
            limit=MAX_TEXT_CHARS,
        )


def _ids(
    part: Part, encode: Encode, embeddings: Mapping[str, Sequence[int]]
) -> Iterator[Sequence[int]]:
    """What is kept together: words, an embedding's vectors, the commas after its name."""
    words = part.text
    if part.is_embedding:
        name, words = part.text, ""
        if name not in embeddings:
            name, words = without_commas(name)
        yield embeddings.get(name, ())
    yield encode(words)
