"""CLIP's byte-pair tokenizer, and the chunks of 77 that a text becomes.

The merges are package data (`data/clip`); the vocabulary follows from them. Source: CLIP
(arXiv 2103.00020), section 2.4; byte-level BPE as in GPT-2.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import NFC, Lowercase, Replace
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

from ...graph_import.prompt_text import Part, parse_weights, split_embeddings, without_commas
from ..errors import NodeFailed

CHUNK_LENGTH: Final = 77
BEGIN_ID: Final = 49406
END_ID: Final = 49407
MIN_CUT_LENGTH: Final = 8  # segments of fewer tokens move to the next chunk whole
MAX_CHUNKS: Final = 256
MAX_TEXT_CHARS: Final = 100_000
NO_EMBEDDINGS: Final[Mapping[str, Sequence[int]]] = MappingProxyType({})

_MERGES: Final = Path(__file__).parent / "data" / "clip" / "merges.txt.gz"
_BEGIN: Final = "<|startoftext|>"
_END: Final = "<|endoftext|>"
_WORD_END: Final = "</w>"
_WORDS: Final = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of the encoder takes: 77 token ids, begin, end and padding included.

    `weights` has one number per id, 1.0 where the text gives none.
    """

    ids: tuple[int, ...]
    weights: tuple[float, ...]


class ClipTokenizer:
    """Texts to chunks. The vocabulary is built at the first use (a second), once per process.

    Args:
        pad_id: what follows the end token: the end token again for CLIP-L, 0 for CLIP-G.
    """

    def __init__(self, *, pad_id: int = END_ID) -> None:
        self.pad_id = pad_id

    def chunks(
        self, text: str, embeddings: Mapping[str, Sequence[int]] = NO_EMBEDDINGS
    ) -> list[Chunk]:
        """The chunks of a text with weights; an empty text is one chunk.

        Args:
            embeddings: what stands for `embedding:name`, by name: ids beyond the vocabulary, one
                per vector. A name that isn't there is left out.

        Raises: NodeFailed: the text is longer than MAX_CHUNKS chunks or MAX_TEXT_CHARS.
        """
        if len(text) > MAX_TEXT_CHARS:
            raise NodeFailed(
                f"the text has {len(text)} characters; {MAX_TEXT_CHARS} are possible",
                limit=MAX_TEXT_CHARS,
            )
        filled: list[list[tuple[int, float]]] = [[]]
        room = CHUNK_LENGTH - 2
        for segment in self._segments(text, embeddings):
            rest = segment
            while rest:
                free = room - len(filled[-1])
                if len(rest) > free and len(segment) < MIN_CUT_LENGTH:
                    free = 0
                filled[-1] += rest[:free]
                rest = rest[free:]
                if rest:
                    filled.append([])
            if len(filled) > MAX_CHUNKS:
                raise NodeFailed(
                    f"the text is longer than {MAX_CHUNKS} chunks of {room} tokens",
                    limit=MAX_CHUNKS,
                )
        return [self._close(tokens) for tokens in filled]

    def _segments(
        self, text: str, embeddings: Mapping[str, Sequence[int]]
    ) -> Iterator[list[tuple[int, float]]]:
        for segment in parse_weights(text):
            for part in split_embeddings(segment.text):
                for ids in _part_ids(part, embeddings):
                    yield [(token_id, segment.weight) for token_id in ids]

    def _close(self, tokens: list[tuple[int, float]]) -> Chunk:
        ids = [BEGIN_ID, *(token_id for token_id, _ in tokens), END_ID]
        weights = [1.0, *(weight for _, weight in tokens), 1.0]
        missing = CHUNK_LENGTH - len(ids)
        return Chunk(
            ids=tuple(ids + [self.pad_id] * missing), weights=tuple(weights + [1.0] * missing)
        )


def _part_ids(part: Part, embeddings: Mapping[str, Sequence[int]]) -> Iterator[Sequence[int]]:
    """What is kept together: words, an embedding's vectors, the commas after its name."""
    words = part.text
    if part.is_embedding:
        name, words = part.text, ""
        if name not in embeddings:
            name, words = without_commas(name)
        yield embeddings.get(name, ())
    yield _vocabulary().encode(words, add_special_tokens=False).ids


@cache
def _vocabulary() -> Tokenizer:
    """Words of a text to ids. It is not written to after it is built, so threads may share it."""
    merges = [
        (left, right)
        for left, _, right in (
            line.partition(" ")
            for line in gzip.decompress(_MERGES.read_bytes()).decode("utf-8").splitlines()
        )
    ]
    letters = _byte_letters()
    entries = [
        *letters,
        *(letter + _WORD_END for letter in letters),
        *(left + right for left, right in merges),
        _BEGIN,
        _END,
    ]
    tokenizer = Tokenizer(
        BPE(
            vocab={entry: index for index, entry in enumerate(entries)},
            merges=merges,
            unk_token=_END,
            continuing_subword_prefix="",
            end_of_word_suffix=_WORD_END,
        )
    )
    tokenizer.normalizer = Normalizers([NFC(), Replace(Regex(r"\s+"), " "), Lowercase()])
    tokenizer.pre_tokenizer = PreTokenizers(
        [
            Split(Regex(_WORDS), behavior="removed", invert=True),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(word, normalized=False, special=True) for word in (_BEGIN, _END)]
    )
    return tokenizer


def _byte_letters() -> list[str]:
    """The letters that stand for the 256 bytes, in the order of the vocabulary.

    Printable Latin-1 bytes stand for themselves and come first; the others take the code points
    from 256 on. Source: GPT-2's byte-level BPE.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    num_others = 256 - len(printable)
    return [chr(code) for code in (*printable, *range(256, 256 + num_others))]
