"""Which text encoders a family has, and the tokenizer of each.

Source: ComfyUI 0.8.0, `prompts.json` of the goldens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from ....graph_import.errors import ModelFileProblem
from ....graph_import.text_encoders import CLIP_G, CLIP_L, QWEN3_4B, T5XXL
from ..clip_tokenizer import END_ID, ClipTokenizer
from . import chat_templates
from .pieces import NO_EMBEDDINGS, Chunk
from .qwen_tokenizer import ChatTemplate, QwenTokenizer
from .t5_tokenizer import T5Tokenizer
from .tokenizer import NO_PADDING, Padding, Tokenizer

CLIP_H: Final = "clip_h"
T5_BASE: Final = "t5base"
QWEN3_2B: Final = "qwen3_2b"
QWEN25_7B: Final = "qwen25_7b"
QWEN25_3B: Final = "qwen25_3b"

LEVELLED: Final = (CLIP_L, CLIP_G)  # run side by side, so over equally many chunks

NO_FILES: Final[Mapping[str, Mapping[str, Sequence[int]]]] = MappingProxyType({})


def tokenizers(family: str, t5_padding: Padding | None = None) -> Mapping[str, Tokenizer]:
    """The tokenizers of a family's encoders, by the encoders' names. It costs nothing.

    Vocabularies are read when the first text comes, once per process: Qwen's takes 0.3 s of CPU,
    CLIP's and T5's 0.1 s each.

    Args:
        t5_padding: instead of the family's own, for T5.
    Raises: ModelFileProblem: no such family.
    """
    made: dict[str, Tokenizer] = {}
    for encoder, pad_id in _CLIP_PADDING.get(family, {}).items():
        made[encoder] = ClipTokenizer(pad_id=pad_id)
    for encoder, t5 in _T5.get(family, {}).items():
        padding = t5_padding or Padding(min_length=t5.min_length)
        made[encoder] = T5Tokenizer(padding=padding, takes_embeddings=t5.takes_embeddings)
    for encoder, qwen in _QWEN.get(family, {}).items():
        made[encoder] = QwenTokenizer(
            qwen.template, padding=qwen.padding, is_weighted=qwen.is_weighted
        )
    if not made:
        raise ModelFileProblem(f"the family {family} has no tokenizer here")
    return made


def encoder_chunks(
    given: Mapping[str, Tokenizer],
    texts: Mapping[str, str],
    embeddings: Mapping[str, Mapping[str, Sequence[int]]] = NO_FILES,
    *,
    is_empty_left_out: bool = False,
) -> dict[str, list[Chunk]]:
    """What each encoder of `given` gets where each has a text of its own.

    CLIP-L and CLIP-G get equally many chunks: those of the empty text follow the shorter one's.

    Args:
        texts: by encoder.
        embeddings: by encoder, then by the name in the text; see `Tokenizer.chunks`.
        is_empty_left_out: an empty text is no chunk; else it is one.
    Raises: NodeFailed: a text is too long.
    """
    chunks = {
        encoder: []
        if is_empty_left_out and not texts[encoder]
        else tokenizer.chunks(texts[encoder], embeddings.get(encoder, NO_EMBEDDINGS))
        for encoder, tokenizer in given.items()
    }
    levelled = [encoder for encoder in LEVELLED if encoder in given]
    longest = max((len(chunks[encoder]) for encoder in levelled), default=0)
    for encoder in levelled:
        missing = longest - len(chunks[encoder])
        if missing:
            chunks[encoder] += given[encoder].chunks("") * missing
    return chunks


class _T5Use(msgspec.Struct, frozen=True, kw_only=True):
    min_length: int = 0
    takes_embeddings: bool = True


class _QwenUse(msgspec.Struct, frozen=True, kw_only=True):
    template: ChatTemplate
    padding: Padding = NO_PADDING
    is_weighted: bool = False


_CLIP_PADDING: Final[Mapping[str, Mapping[str, int]]] = {
    "sd15": {CLIP_L: END_ID},
    "sd2": {CLIP_H: 0},
    "sdxl": {CLIP_L: END_ID, CLIP_G: 0},
    "stable_cascade": {CLIP_G: END_ID},
    "sd3": {CLIP_L: END_ID, CLIP_G: 0},
    "flux": {CLIP_L: END_ID},
}
_T5: Final[Mapping[str, Mapping[str, _T5Use]]] = {
    "sd3": {T5XXL: _T5Use(min_length=77)},
    "flux": {T5XXL: _T5Use(min_length=256)},
    "pixart": {T5XXL: _T5Use()},
    "ltxv": {T5XXL: _T5Use(min_length=128)},
    "mochi": {T5XXL: _T5Use(min_length=256)},
    "cosmos": {T5XXL: _T5Use(min_length=512)},
    "stable_audio": {T5_BASE: _T5Use(min_length=128, takes_embeddings=False)},
}
_QWEN: Final[Mapping[str, Mapping[str, _QwenUse]]] = {
    "z_image": {QWEN3_4B: _QwenUse(template=chat_templates.Z_IMAGE)},
    "qwen_image": {QWEN25_7B: _QwenUse(template=chat_templates.QWEN_IMAGE)},
    "omnigen2": {QWEN25_3B: _QwenUse(template=chat_templates.OMNIGEN2, is_weighted=True)},
    "ovis": {QWEN3_2B: _QwenUse(template=chat_templates.OVIS, padding=Padding(min_length=284))},
    "hunyuan_image": {QWEN25_7B: _QwenUse(template=chat_templates.HUNYUAN_IMAGE)},
}
