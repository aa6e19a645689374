"""Texts as one chunk each, however long: what T5 and language models take.

Their vocabularies are package data (`../data/t5`, `../data/qwen`), read and built at the first use.
Sources: T5 (arXiv 1910.10683), section 2.4.2; Qwen2 (arXiv 2407.10671), section 2.1.
"""

from __future__ import annotations

import lzma
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Split, WhitespaceSplit
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

from ...errors import NodeFailed
from ..clip_tokenizer import byte_letters
from .pieces import NO_EMBEDDINGS, Chunk, Piece, pieces

MAX_TOKENS: Final = 4096  # attention over them takes a gigabyte and more of a large encoder
T5_END_ID: Final = 1
T5_PAD_ID: Final = 0
QWEN_PAD_ID: Final = 151643

_DATA: Final = Path(__file__).parents[1] / "data"
_T5: Final = _DATA / "t5" / "tokenizer.json.xz"
_QWEN_MERGES: Final = _DATA / "qwen" / "merges.txt.xz"
_QWEN_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# What follows the vocabulary, from id 151643 on; only the first group never shows in a text.
_QWEN_CONTROLS: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_QWEN_MARKS: Final = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)


class Padding(msgspec.Struct, frozen=True, kw_only=True):
    """How far a chunk is filled up: at least `min_padding` ids, and to `min_length` at least."""

    min_length: int = 0
    min_padding: int = 0


NO_PADDING: Final = Padding()


class T5Tokenizer:
    """Texts with weights to T5's ids, segment by segment.

    Args:
        padding: what the family fills up to.
        has_embeddings: `embedding:name` stands for vectors; else it is words.
    """

    def __init__(self, padding: Padding, *, has_embeddings: bool = True) -> None:
        self.padding = padding
        self._has_embeddings = has_embeddings

    def chunks(
        self,
        text: str,
        embeddings: Mapping[str, Sequence[int]] = NO_EMBEDDINGS,
        padding: Padding | None = None,
    ) -> list[Chunk]:
        """The chunk of a text. Args: padding: instead of the family's.

        Raises: NodeFailed: the text is longer than MAX_TOKENS or MAX_TEXT_CHARS.
        """
        found = list(pieces(text, _t5_ids, embeddings if self._has_embeddings else None))
        return [_chunk(found, [T5_END_ID], T5_PAD_ID, padding or self.padding)]


class QwenTokenizer:
    """Texts to the ids of a Qwen model, inside a chat template. They take no embeddings.

    Args:
        template: the chat, with `{}` where the text goes.
        padding: what the family fills up to.
        is_weighted: parentheses are weights; else they are text.
    """

    def __init__(
        self, template: str, padding: Padding = NO_PADDING, *, is_weighted: bool = False
    ) -> None:
        self._before, _, self._after = template.partition("{}")
        self._padding = padding
        self._is_weighted = is_weighted

    def chunks(self, text: str) -> list[Chunk]:
        """The chunk of a text. Raises: NodeFailed, as of `T5Tokenizer`."""
        whole = f"{self._before}{text}{self._after}"
        found = list(pieces(whole, _qwen_ids, None, is_weighted=self._is_weighted))
        return [_chunk(found, [], QWEN_PAD_ID, self._padding)]


def _chunk(found: Sequence[Piece], end: list[int], pad_id: int, padding: Padding) -> Chunk:
    ids = [token_id for piece in found for token_id in piece.ids] + end
    if len(ids) > MAX_TOKENS:
        raise NodeFailed(
            f"the text has {len(ids)} tokens; {MAX_TOKENS} are possible", limit=MAX_TOKENS
        )
    weights = [piece.weight for piece in found for _ in piece.ids]
    words = [number for number, piece in enumerate(found, start=1) for _ in piece.ids]
    length = min(max(len(ids) + padding.min_padding, padding.min_length), MAX_TOKENS)
    return Chunk(
        ids=tuple(ids + [pad_id] * (length - len(ids))),
        weights=tuple(weights + [1.0] * (length - len(weights))),
        words=tuple(words + [0] * (length - len(words))),
    )


def _t5_ids(words: str) -> Sequence[int]:
    ids: list[int] = _t5().encode(words, add_special_tokens=False).ids
    return ids


def _qwen_ids(words: str) -> Sequence[int]:
    ids: list[int] = _qwen().encode(words, add_special_tokens=False).ids
    return ids


@cache
def _t5() -> Tokenizer:
    """It is not written to after it is built, so threads may share it."""
    tokenizer = Tokenizer.from_str(lzma.decompress(_T5.read_bytes()).decode("utf-8"))
    # Without the cut at spaces one before a special token, or at the end, would become a token.
    tokenizer.pre_tokenizer = PreTokenizers(
        [WhitespaceSplit(), Metaspace(replacement="\u2581", prepend_scheme="always")]
    )
    return tokenizer


@cache
def _qwen() -> Tokenizer:
    """The vocabulary is the 256 byte letters, and what the merges make, in their order."""
    lines = lzma.decompress(_QWEN_MERGES.read_bytes()).decode("utf-8").splitlines()
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in lines)]
    entries = [*byte_letters(), *(left + right for left, right in merges)]
    tokenizer = Tokenizer(
        BPE(vocab={entry: index for index, entry in enumerate(entries)}, merges=merges)
    )
    tokenizer.normalizer = NFC()
    tokenizer.pre_tokenizer = PreTokenizers(
        [
            Split(Regex(_QWEN_WORDS), behavior="isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in _QWEN_CONTROLS])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in _QWEN_MARKS])
    return tokenizer
