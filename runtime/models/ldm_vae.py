"""The autoencoder of the original SD files (LDM layout): configuration, names as in diffusers.

Source: design notes on models, section 4.
"""

from __future__ import annotations

import re
from typing import Any, Final

import torch

from .checkpoint import Weights

_SAMPLER_OR_BLOCK: Final = re.compile(
    r"(encoder|decoder)\.(?:down|up)\.(\d+)\.(?:block\.(\d+)|(?:down|up)sample)\.(.*)"
)
_WORDS: Final = (
    ("mid.block_1", "mid_block.resnets.0"),
    ("mid.block_2", "mid_block.resnets.1"),
    ("norm_out", "conv_norm_out"),
    ("nin_shortcut", "conv_shortcut"),
)
_ATTENTION: Final = {
    "norm": "group_norm",
    "q": "to_q",
    "k": "to_k",
    "v": "to_v",
    "proj_out": "to_out.0",
}


def num_levels(weights: Weights) -> int:
    """Levels of the encoder; every one but the last halves the picture."""
    return weights.count(r"encoder\.down\.(\d+)\.")


def vae_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `AutoencoderKL`, from shapes. Raises: ModelFileProblem: a weight is missing."""
    levels = num_levels(weights)
    names = [f"encoder.down.{level}.block.0.conv1.weight" for level in range(levels)]
    return {
        "latent_channels": weights.shape("decoder.conv_in.weight", 4)[1],
        "in_channels": 3,
        "out_channels": 3,
        "block_out_channels": tuple(weights.shape(name, 4)[0] for name in names),
        "layers_per_block": weights.count(r"encoder\.down\.0\.block\.(\d+)\."),
        "down_block_types": ("DownEncoderBlock2D",) * levels,
        "up_block_types": ("UpDecoderBlock2D",) * levels,
        "use_quant_conv": "quant_conv.weight" in weights,
        "use_post_quant_conv": "post_quant_conv.weight" in weights,
    }


def rename_vae(weights: Weights) -> dict[str, torch.Tensor]:
    """The tensors under diffusers' names; the attention's 1x1 convolutions become matrices."""
    levels = num_levels(weights)
    renamed: dict[str, torch.Tensor] = {}
    for name, tensor in weights.tensors.items():
        own = vae_name(name, levels)
        is_matrix = ".attentions.0.to_" in own and tensor.dim() == 4
        renamed[own] = tensor[:, :, 0, 0] if is_matrix else tensor
    return renamed


def vae_name(name: str, levels: int) -> str:
    """The name that `AutoencoderKL` has for a weight of the original layout."""
    for original, own in _WORDS:
        name = name.replace(original, own)
    match = _SAMPLER_OR_BLOCK.match(name)
    if match:
        half, level, block, tail = match.groups()
        side = "down" if half == "encoder" else "up"
        own_level = int(level) if side == "down" else levels - 1 - int(level)
        kind = f"resnets.{block}" if block else f"{side}samplers.0"
        return f"{half}.{side}_blocks.{own_level}.{kind}.{tail}"
    half, separator, tail = name.partition(".mid.attn_1.")
    part, _, leaf = tail.rpartition(".")
    if separator and part in _ATTENTION:
        return f"{half}.mid_block.attentions.0.{_ATTENTION[part]}.{leaf}"
    return name
