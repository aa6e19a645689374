"""The UNet of the original SD files (LDM layout): its configuration from shapes, diffusers' names.

Shared by the families whose denoiser is this UNet. Source: design notes on models, section 3.
"""

from __future__ import annotations

import re
from typing import Any, Final

from .checkpoint import Weights
from .weight_files import problem

_TOP: Final = {
    "time_embed.0": "time_embedding.linear_1",
    "time_embed.2": "time_embedding.linear_2",
    "input_blocks.0.0": "conv_in",
    "out.0": "conv_norm_out",
    "out.2": "conv_out",
}
_RESNET: Final = {
    "in_layers.0": "norm1",
    "in_layers.2": "conv1",
    "emb_layers.1": "time_emb_proj",
    "out_layers.0": "norm2",
    "out_layers.3": "conv2",
    "skip_connection": "conv_shortcut",
}


def unet_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `UNet2DConditionModel`. Raises: ModelFileProblem: the shapes make no UNet."""
    config = encoder_config(weights)
    down = config["down_block_types"]
    return {
        **config,
        "out_channels": weights.shape("out.2.weight", 4)[0],
        "up_block_types": tuple(name.replace("Down", "Up") for name in reversed(down)),
    }


def encoder_config(weights: Weights) -> dict[str, Any]:
    """Those of them that the encoder half and the middle block decide: a ControlNet has no more.

    Raises: ModelFileProblem: the shapes make no UNet.
    """
    widths, depths, resnets = _levels(weights)
    middle = weights.count(r"middle_block\.1\.transformer_blocks\.(\d+)\.")
    per_level = [max(depth, 1) for depth in depths]
    if depths[-1] == 0:
        per_level[-1] = max(middle, 1)  # diffusers gives the middle block the last level's depth
    down = tuple("CrossAttnDownBlock2D" if depth else "DownBlock2D" for depth in depths)
    return {
        "in_channels": weights.shape("input_blocks.0.0.weight", 4)[1],
        "block_out_channels": tuple(widths),
        "layers_per_block": resnets,
        "down_block_types": down,
        "transformer_layers_per_block": tuple(per_level),
        "cross_attention_dim": context_width(weights),
        "attention_head_dim": 8,  # the number of heads, in spite of its name
    }


def context_width(weights: Weights) -> int:
    """Width of the conditioning that the UNet attends to."""
    return weights.shape("middle_block.1.transformer_blocks.0.attn2.to_k.weight", 2)[1]


def _levels(weights: Weights) -> tuple[list[int], list[int], int]:
    """Per level the width and the transformer depth, and how many resnets every level has."""
    widths: list[int] = []
    depths: list[int] = []
    counts: list[int] = []
    width = depth = num_resnets = 0
    num_blocks = weights.count(r"input_blocks\.(\d+)\.")
    for index in range(1, num_blocks):
        block = f"input_blocks.{index}."
        is_downsampler = block + "0.op.weight" in weights
        if not is_downsampler:
            num_resnets += 1
            width = weights.shape(block + "0.out_layers.3.weight", 4)[0]
            pattern = re.escape(block) + r"1\.transformer_blocks\.(\d+)\."
            depth = max(depth, weights.count(pattern))
        if is_downsampler or index == num_blocks - 1:
            widths.append(width)
            depths.append(depth)
            counts.append(num_resnets)
            depth = num_resnets = 0
    if not counts or len(set(counts)) != 1:
        raise problem(weights.file.path, f"a UNet with {counts} resnets per level is unknown")
    return widths, depths, counts[0]


def unet_name(name: str, num_resnets: int) -> str:
    """The name that `UNet2DConditionModel` has for a weight of the original layout."""
    stem, _, leaf = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{leaf}"
    parts = name.split(".")
    if parts[0] == "middle_block" and len(parts) > 2:
        kind = "attentions.0" if parts[1] == "1" else f"resnets.{int(parts[1]) // 2}"
        return _tail(f"mid_block.{kind}.", parts[2:])
    if parts[0] not in ("input_blocks", "output_blocks") or len(parts) < 5:
        return name  # unknown: the loader refuses it by its own name
    is_down = parts[0] == "input_blocks"
    side = "down" if is_down else "up"
    level, index = divmod(int(parts[1]) - is_down, num_resnets + 1)
    if parts[3] in ("op", "conv"):
        return f"{side}_blocks.{level}.{side}samplers.0.conv.{leaf}"
    kind = "resnets" if parts[2] == "0" else "attentions"
    return _tail(f"{side}_blocks.{level}.{kind}.{index}.", parts[3:])


def _tail(head: str, parts: list[str]) -> str:
    tail = ".".join(parts)
    for original, own in _RESNET.items():
        if tail.startswith(original + "."):
            return f"{head}{own}{tail.removeprefix(original)}"
    return head + tail
