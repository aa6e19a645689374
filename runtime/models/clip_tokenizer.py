"""CLIP's byte-pair tokenizer, and the chunks of 77 that a text becomes.

The merges are package data (`data/clip`); the vocabulary follows from them. Source: CLIP
(arXiv 2103.00020), section 2.4; byte-level BPE as in GPT-2.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import NFC, Lowercase, Replace
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

from ..errors import NodeFailed
from .text.pieces import NO_EMBEDDINGS, Chunk, pieces

CHUNK_LENGTH: Final = 77
BEGIN_ID: Final = 49406
END_ID: Final = 49407
MIN_CUT_LENGTH: Final = 8  # pieces of fewer tokens move to the next chunk whole
MAX_CHUNKS: Final = 256

_MERGES: Final = Path(__file__).parent / "data" / "clip" / "merges.txt.gz"
_BEGIN: Final = "<|startoftext|>"
_END: Final = "<|endoftext|>"
_WORD_END: Final = "</w>"
_WORDS: Final = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"

_Token = tuple[int, float, int]  # id, weight, word


class ClipTokenizer:
    """Texts to chunks. The vocabulary is built at the first use, once per process (0.1 s of CPU).

    Args:
        pad_id: what follows the end token: the end token again for CLIP-L, 0 for CLIP-G.
        is_weighted: parentheses are weights; else they are text.
    """

    takes_embeddings: Final = True

    def __init__(self, *, pad_id: int = END_ID, is_weighted: bool = True) -> None:
        self.pad_id = pad_id
        self._is_weighted = is_weighted

    def chunks(
        self, text: str, embeddings: Mapping[str, Sequence[int]] = NO_EMBEDDINGS
    ) -> list[Chunk]:
        """The chunks of a text with weights; an empty text is one chunk.

        Args:
            embeddings: what stands for `embedding:name`, by name: ids beyond the vocabulary, one
                per vector. A name that isn't there is left out.

        Raises: NodeFailed: the text is longer than MAX_CHUNKS chunks or MAX_TEXT_CHARS.
        """
        filled: list[list[_Token]] = [[]]
        room = CHUNK_LENGTH - 2
        found = pieces(text, _encode, embeddings, is_weighted=self._is_weighted)
        for number, piece in enumerate(found, start=1):
            rest = [(token_id, piece.weight, number) for token_id in piece.ids]
            while rest:
                free = room - len(filled[-1])
                if len(rest) > free and len(piece.ids) < MIN_CUT_LENGTH:
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

    def _close(self, tokens: list[_Token]) -> Chunk:
        padding = [(self.pad_id, 1.0, 0)] * (CHUNK_LENGTH - 2 - len(tokens))
        whole = [(BEGIN_ID, 1.0, 0), *tokens, (END_ID, 1.0, 0), *padding]
        ids, weights, words = zip(*whole, strict=True)
        return Chunk(ids=ids, weights=weights, words=words)


def _encode(words: str) -> Sequence[int]:
    ids: list[int] = _vocabulary().encode(words, add_special_tokens=False).ids
    return ids


@cache
def _vocabulary() -> Tokenizer:
    """Words of a text to ids. It is not written to after it is built, so threads may share it."""
    merges = read_merges(_MERGES)
    letters = byte_letters()
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


def read_merges(file: Path) -> list[tuple[str, str]]:
    """The pairs that become one entry of a byte-pair vocabulary, in order: one a line, gzipped."""
    lines = gzip.decompress(file.read_bytes()).decode("utf-8").splitlines()
    return [(left, right) for left, _, right in (line.partition(" ") for line in lines)]


def byte_letters() -> list[str]:
    """The letters that stand for the 256 bytes, in the order of the vocabulary.

    Printable Latin-1 bytes stand for themselves and come first; the others take the code points
    from 256 on. Source: GPT-2's byte-level BPE.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    num_others = 256 - len(printable)
    return [chr(code) for code in (*printable, *range(256, 256 + num_others))]
