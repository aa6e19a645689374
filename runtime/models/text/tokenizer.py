"""What every tokenizer does, and how those pad that put a whole text in one chunk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from ...errors import NodeFailed
from .pieces import NO_EMBEDDINGS, Chunk, Piece

MAX_TOKENS: Final = 4096  # of a text in one chunk: an encoder's memory grows with its square
MAX_PADDING: Final = 10_000


class Tokenizer(Protocol):
    """Texts to chunks of one text encoder. Threads may share one."""

    @property
    def takes_embeddings(self) -> bool:
        """Whether `embedding:name` in a text stands for vectors; else it is words."""

    def chunks(
        self, text: str, embeddings: Mapping[str, Sequence[int]] = NO_EMBEDDINGS
    ) -> list[Chunk]:
        """The chunks of a text with weights; an empty text is one chunk.

        Args:
            embeddings: what stands for `embedding:name`, by name: ids beyond the vocabulary, one
                per vector. A name that isn't there is left out.
        Raises: NodeFailed: the text is too long.
        """


class Padding(msgspec.Struct, frozen=True, kw_only=True):
    """How many padding ids follow a text.

    Args:
        min_length: pad up to this many ids, end included.
        min_padding: at least so many, however long the text is.
    Raises: ValueError: a number is below 0 or above MAX_PADDING.
    """

    min_length: int = 0
    min_padding: int = 0

    def __post_init__(self) -> None:
        for name, number in (("min_length", self.min_length), ("min_padding", self.min_padding)):
            if not 0 <= number <= MAX_PADDING:
                raise ValueError(f"{name} is {number}; 0 to {MAX_PADDING} are possible")

    def count(self, num_ids: int) -> int:
        """How many follow `num_ids` ids."""
        return max(self.min_padding, self.min_length - num_ids)


NO_PADDING: Final = Padding()


def one_chunk(
    found: Iterable[Piece], *, end: tuple[int, ...], pad_id: int, padding: Padding
) -> Chunk:
    """The pieces of a whole text in one chunk, then `end`, then the padding.

    Raises: NodeFailed: there are more than MAX_TOKENS ids.
    """
    ids: list[int] = []
    weights: list[float] = []
    words: list[int] = []
    for number, piece in enumerate(found, start=1):
        ids += piece.ids
        weights += [piece.weight] * len(piece.ids)
        words += [number] * len(piece.ids)
    if len(ids) > MAX_TOKENS:
        raise NodeFailed(
            f"the text has {len(ids)} tokens; {MAX_TOKENS} are possible", limit=MAX_TOKENS
        )
    ids += end
    ids += [pad_id] * padding.count(len(ids))
    num_around = len(ids) - len(words)
    return Chunk(
        ids=tuple(ids),
        weights=(*weights, *(1.0 for _ in range(num_around))),
        words=(*words, *(0 for _ in range(num_around))),
    )
