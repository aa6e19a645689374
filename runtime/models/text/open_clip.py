"""CLIP's text transformer under open_clip's names, as SDXL's checkpoints hold CLIP-G.

Source: design notes on models, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch

from .places import CLIP_TOKENS, OPEN_CLIP_TOKENS, TEXT_LEVEL

_BLOCKS: Final = "transformer.resblocks."
_IN_PROJECTION: Final = ".attn.in_proj_"
_TOP: Final = {
    OPEN_CLIP_TOKENS: CLIP_TOKENS,
    "positional_embedding": "embeddings.position_embedding.weight",
    "ln_final.weight": "final_layer_norm.weight",
    "ln_final.bias": "final_layer_norm.bias",
}
_INSIDE: Final = {
    ".ln_": ".layer_norm",
    ".mlp.c_fc.": ".mlp.fc1.",
    ".mlp.c_proj.": ".mlp.fc2.",
    ".attn.": ".self_attn.",
}


def is_open_clip(tensors: Mapping[str, torch.Tensor]) -> bool:
    """Whether these are open_clip's names."""
    return OPEN_CLIP_TOKENS in tensors


def renamed_open_clip(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors under transformers' names: the attention's three matrices are one here.

    One that isn't three of equal size gets a name that no model has.
    What isn't the text's (its picture half, the logits' scale) is left out.
    """
    renamed: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name in _TOP:
            renamed[TEXT_LEVEL + _TOP[name]] = tensor
        elif name == "text_projection":
            renamed["text_projection.weight"] = transposed(tensor)
        elif name == "text_projection.weight":
            renamed[name] = tensor
        elif name.startswith(_BLOCKS):
            path = f"{TEXT_LEVEL}encoder.layers.{name.removeprefix(_BLOCKS)}"
            if _IN_PROJECTION in path and tensor.dim() > 0 and len(tensor) % 3 == 0:
                base, _, leaf = path.partition(_IN_PROJECTION)
                for part, rows in zip("qkv", tensor.chunk(3), strict=True):
                    renamed[f"{base}.self_attn.{part}_proj.{leaf}"] = rows
            else:
                for theirs, ours in _INSIDE.items():
                    path = path.replace(theirs, ours)
                renamed[path] = tensor
    return renamed


def transposed(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix with its sides swapped; what isn't one stays as it is, and fits no model."""
    return matrix.t() if matrix.dim() == 2 else matrix
