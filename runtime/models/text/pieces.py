"""What a text becomes before it is cut into chunks: runs of token ids under one weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from ....graph_import.prompt_text import (
    before_embeddings,
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
    text: str,
    encode: Encode,
    embeddings: Mapping[str, Sequence[int]] | None,
    *,
    is_weighted: bool = True,
) -> Iterator[Piece]:
    """The pieces of a text in order.

    Args:
        encode: words to ids.
        embeddings: what stands for `embedding:name`, by name: ids beyond the vocabulary, one per
            vector. A name that isn't there is left out. None: names are words.
        is_weighted: parentheses are weights; else they are text.
    Raises: NodeFailed: the text is longer than MAX_TEXT_CHARS.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise NodeFailed(
            f"the text has {len(text)} characters; {MAX_TEXT_CHARS} are possible",
            limit=MAX_TEXT_CHARS,
        )
    for segment in parse_weights(text) if is_weighted else [unweighted(text)]:
        if embeddings is None:
            found: Iterable[Sequence[int]] = map(encode, before_embeddings(segment.text))
        else:
            found = _kept_together(segment.text, encode, embeddings)
        for ids in found:
            yield Piece(ids=tuple(ids), weight=segment.weight)


def _kept_together(
    text: str, encode: Encode, embeddings: Mapping[str, Sequence[int]]
) -> Iterator[Sequence[int]]:
    """Words, or an embedding's vectors; the commas after its name belong to what follows."""
    commas = ""
    for part in split_embeddings(text):
        if not part.is_embedding:
            yield encode(f"{commas} {part.text}" if commas else part.text)
            commas = ""
            continue
        if commas:
            yield encode(commas)
        name, commas = part.text, ""
        if name not in embeddings:
            name, commas = without_commas(name)
        yield embeddings.get(name, ())
    if commas:
        yield encode(commas)
