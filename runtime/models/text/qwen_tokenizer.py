"""Qwen's byte-pair tokenizer: a text inside a chat's turns, in one chunk.

The merges are package data (`data/qwen`); the vocabulary follows from them. Source: Qwen2
(arXiv 2407.10671), section 2.1; byte-level BPE as in GPT-2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

from ..clip_tokenizer import byte_letters, read_merges
from .pieces import NO_EMBEDDINGS, Chunk, pieces
from .tokenizer import NO_PADDING, Padding, one_chunk

PAD_ID: Final = 151643

_MERGES: Final = Path(__file__).parents[1] / "data" / "qwen" / "merges.txt.gz"
_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MARKS: Final = (  # whole ids from PAD_ID on; the ones in bars are special
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>"),
    *("<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>"),
    *("</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>"),
    "</think>",
)


class ChatTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around the text of a user's turn."""

    before: str
    after: str


class QwenTokenizer:
    """Texts to one chunk each. The vocabulary is built at the first use, once per process.

    Names of embeddings are words.

    Args:
        template: put around every text before anything else is read in it.
        is_weighted: parentheses are weights; else they are text.
    """

    takes_embeddings: Final = False

    def __init__(
        self,
        template: ChatTemplate,
        *,
        padding: Padding = NO_PADDING,
        is_weighted: bool = False,
    ) -> None:
        self._template = template
        self._padding = padding
        self._is_weighted = is_weighted

    def chunks(
        self, text: str, embeddings: Mapping[str, Sequence[int]] = NO_EMBEDDINGS
    ) -> list[Chunk]:
        """The chunk of a text inside the template; see `Tokenizer`. It is never cut."""
        whole = f"{self._template.before}{text}{self._template.after}"
        found = pieces(whole, _encode, None, is_weighted=self._is_weighted)
        return [one_chunk(found, end=(), pad_id=PAD_ID, padding=self._padding)]


def _encode(words: str) -> Sequence[int]:
    ids: list[int] = _vocabulary().encode(words, add_special_tokens=False).ids
    return ids


@cache
def _vocabulary() -> Tokenizer:
    """Words to ids. It is not written to after it is built, so threads may share it."""
    merges = read_merges(_MERGES)
    entries = [*byte_letters(), *(left + right for left, right in merges)]
    tokenizer = Tokenizer(
        BPE(vocab={entry: index for index, entry in enumerate(entries)}, merges=merges)
    )
    tokenizer.normalizer = NFC()
    tokenizer.pre_tokenizer = PreTokenizers(
        [
            Split(Regex(_WORDS), behavior="isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_tokens(
        [AddedToken(mark, normalized=False, special=mark.startswith("<|")) for mark in _MARKS]
    )
    return tokenizer
