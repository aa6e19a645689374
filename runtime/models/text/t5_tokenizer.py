"""T5's tokenizer: a text in one chunk, with the end id and padding.

The vocabulary is package data (`data/t5`). Source: T5 (arXiv 1910.10683), section 2.2; a unigram
model (arXiv 1804.10959).
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import Metaspace, WhitespaceSplit
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

from .pieces import NO_EMBEDDINGS, Chunk, pieces
from .tokenizer import NO_PADDING, Padding, one_chunk

PAD_ID: Final = 0
END_ID: Final = 1

_DATA: Final = Path(__file__).parents[1] / "data" / "t5" / "tokenizer.json.gz"


class T5Tokenizer:
    """Texts to one chunk each. The vocabulary is read at the first use, once per process.

    Args:
        takes_embeddings: `embedding:name` stands for vectors; else it is words.
    """

    def __init__(self, *, padding: Padding = NO_PADDING, takes_embeddings: bool = True) -> None:
        self.takes_embeddings = takes_embeddings
        self._padding = padding

    def chunks(
        self, text: str, embeddings: Mapping[str, Sequence[int]] = NO_EMBEDDINGS
    ) -> list[Chunk]:
        """The chunk of a text with weights; see `Tokenizer`. It is never cut."""
        found = pieces(text, _encode, embeddings if self.takes_embeddings else None)
        return [one_chunk(found, end=(END_ID,), pad_id=PAD_ID, padding=self._padding)]


def _encode(words: str) -> Sequence[int]:
    ids: list[int] = _vocabulary().encode(words, add_special_tokens=False).ids
    return ids


@cache
def _vocabulary() -> Tokenizer:
    """Words to ids. It is not written to after it is built, so threads may share it."""
    tokenizer = Tokenizer.from_str(gzip.decompress(_DATA.read_bytes()).decode("utf-8"))
    # The file's own rule makes a word of each space; recorded from ComfyUI 0.8.0 is that none is.
    tokenizer.pre_tokenizer = PreTokenizers([WhitespaceSplit(), Metaspace()])
    return tokenizer
