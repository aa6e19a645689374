"""Which text encoders a file holds, and under which names: told by its header. No torch.

The server imports this module by way of `headers.py`. Widths may be anything; an own file's CLIP is
told by its number of layers, as ComfyUI tells it.
Source: design notes on models, section 5 ("recognised by").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ....graph_import.text_encoders import CLIP_G, CLIP_L, QWEN3_4B, T5XXL
from ..weight_files import TensorInfo

SD15_TEXT_PREFIX: Final = "cond_stage_model.transformer."
JOINT_TEXT_PREFIX: Final = "text_encoders."  # SD3, Flux and later checkpoints

TEXT_LEVEL: Final = "text_model."
CLIP_TOKENS: Final = "embeddings.token_embedding.weight"
OPEN_CLIP_TOKENS: Final = "token_embedding.weight"
T5_TOKENS: Final = "shared.weight"
QWEN_LEVEL: Final = "model."
QWEN_TOKENS: Final = QWEN_LEVEL + "embed_tokens.weight"

_CLIP_LAYERS: Final = (
    "text_model.encoder.layers.{}.mlp.fc1.weight",
    "transformer.resblocks.{}.mlp.c_fc.weight",
)
_CLIP_H_LAST_LAYER: Final = 22
_CLIP_G_LATE_LAYER: Final = 30

# What stands before an encoder's own names in checkpoints.
_PREFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    CLIP_L: (
        JOINT_TEXT_PREFIX + "clip_l.transformer.",
        "conditioner.embedders.0.transformer.",
        SD15_TEXT_PREFIX,
    ),
    CLIP_G: (
        JOINT_TEXT_PREFIX + "clip_g.transformer.",
        "conditioner.embedders.1.model.",
        "conditioner.embedders.0.model.",
    ),
    T5XXL: (JOINT_TEXT_PREFIX + "t5xxl.transformer.",),
    QWEN3_4B: (JOINT_TEXT_PREFIX + "qwen3_4b.transformer.",),
}
# The names, one of which an encoder's tokens have; a checkpoint of SD1 may lack a level.
_TOKENS: Final[Mapping[str, tuple[str, ...]]] = {
    CLIP_L: (TEXT_LEVEL + CLIP_TOKENS, CLIP_TOKENS),
    CLIP_G: (TEXT_LEVEL + CLIP_TOKENS, OPEN_CLIP_TOKENS),
    T5XXL: (T5_TOKENS,),
    QWEN3_4B: (QWEN_TOKENS,),
}

Tensors = Mapping[str, TensorInfo]


@dataclass(slots=True, frozen=True)
class Place:
    """A text encoder in a file.

    Args:
        encoder: such as `clip_l`.
        prefix: what stands before its names.
        tokens: the whole name of its token embedding, whose dtype stands for the encoder's.
    """

    encoder: str
    prefix: str
    tokens: str


def text_places(tensors: Tensors) -> tuple[Place, ...]:
    """The text encoders of a checkpoint, or of a file of their own; one of each kind."""
    found = {place.encoder: place for place in _in_checkpoint(tensors)}
    if not found:
        found = {place.encoder: place for place in _alone(tensors)}
    return tuple(found[encoder] for encoder in _PREFIXES if encoder in found)


def _in_checkpoint(tensors: Tensors) -> Iterator[Place]:
    for encoder, prefixes in _PREFIXES.items():
        for prefix in reversed(prefixes):  # the last one found counts
            for tokens in _TOKENS[encoder]:
                if prefix + tokens in tensors:
                    yield Place(encoder, prefix, prefix + tokens)


def _alone(tensors: Tensors) -> Iterator[Place]:
    clip = _clip_alone(tensors)
    if clip is not None:
        yield clip
    relative = "encoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight"
    # The multilingual T5 has such a table in every block, the first T5s have no gate.
    is_gated = "encoder.block.0.layer.1.DenseReluDense.wi_1.weight" in tensors
    if is_gated and T5_TOKENS in tensors and relative.format(1) not in tensors:
        yield Place(T5XXL, "", T5_TOKENS)
    if QWEN_LEVEL + "layers.0.self_attn.q_norm.weight" in tensors and QWEN_TOKENS in tensors:
        yield Place(QWEN3_4B, "", QWEN_TOKENS)


def _clip_alone(tensors: Tensors) -> Place | None:
    """CLIP-L or CLIP-G; CLIP-H, which SD2 has, is neither."""
    for layer in _CLIP_LAYERS:
        if layer.format(0) not in tensors:
            continue
        is_large = layer.format(_CLIP_H_LAST_LAYER) in tensors
        is_largest = layer.format(_CLIP_G_LATE_LAYER) in tensors
        if is_large and not is_largest:
            return None
        encoder = CLIP_G if is_largest else CLIP_L
        tokens = [name for name in _TOKENS[encoder] if name in tensors]
        return Place(encoder, "", tokens[0]) if tokens else None
    return None


def other_text_encoder(tensors: Tensors) -> str | None:
    """What a file of an encoder is that we don't have; None: it is none that we know of."""
    if any(layer.format(_CLIP_H_LAST_LAYER) in tensors for layer in _CLIP_LAYERS):
        return "CLIP-H"
    if "encoder.block.0.layer.0.SelfAttention.q.weight" in tensors:
        return "a T5 without gates or with several languages"
    if QWEN_LEVEL + "layers.0.self_attn.k_proj.weight" in tensors:
        return "a language model of no known kind"
    return None
