"""The transformer of SD3 and SD3.5 in its original files: configuration, names as in diffusers.

Source: Esser et al. (arXiv 2403.03206), section 4; design notes on models, section 3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import torch

from .checkpoint import Weights
from .weight_files import problem

HEAD_WIDTH: Final = 64
_BLOCK: Final = re.compile(r"joint_blocks\.(\d+)\.(context|x)_block\.(.*)")
_TOP: Final = {
    "x_embedder.proj": "pos_embed.proj",
    "final_layer.linear": "proj_out",
    "context_embedder": "context_embedder",
    "t_embedder.mlp.0": "time_text_embed.timestep_embedder.linear_1",
    "t_embedder.mlp.2": "time_text_embed.timestep_embedder.linear_2",
    "y_embedder.mlp.0": "time_text_embed.text_embedder.linear_1",
    "y_embedder.mlp.2": "time_text_embed.text_embedder.linear_2",
}
_FINAL_MODULATION: Final = "final_layer.adaLN_modulation.1"
_QKV: Final = {
    "x": ("to_q", "to_k", "to_v"),
    "context": ("add_q_proj", "add_k_proj", "add_v_proj"),
}
_OUTPUT: Final = {"x": "to_out.0", "context": "to_add_out"}
_NORM: Final = {"x": ".norm_", "context": ".norm_added_"}
_SUFFIX: Final = {"x": "", "context": "_context"}
_PARTS: Final = (  # of a block, as far as they are matrices
    *("attn.qkv", "attn.proj", "attn2.qkv", "attn2.proj", "mlp.fc1", "mlp.fc2"),
    "adaLN_modulation.1",
)


def mmdit_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `SD3Transformer2DModel`, from shapes. Raises: ModelFileProblem."""
    width, in_channels, patch_size, _ = weights.shape("x_embedder.proj.weight", 4)
    num_layers = num_blocks(weights)
    has_norms = "joint_blocks.0.x_block.attn.ln_q.weight" in weights
    return {
        "sample_size": 128,  # a default size; positions are cut from the table of `pos_embed`
        "patch_size": patch_size,
        "in_channels": in_channels,
        "num_layers": num_layers,
        "attention_head_dim": HEAD_WIDTH,
        "num_attention_heads": width // HEAD_WIDTH,
        "joint_attention_dim": weights.shape("context_embedder.weight", 2)[1],
        "caption_projection_dim": width,
        "pooled_projection_dim": weights.shape("y_embedder.mlp.0.weight", 2)[1],
        "out_channels": weights.shape("final_layer.linear.weight", 2)[0] // patch_size**2,
        "pos_embed_max_size": math.isqrt(weights.shape("pos_embed", 3)[1]),
        "qk_norm": "rms_norm" if has_norms else None,
        "dual_attention_layers": tuple(
            index
            for index in range(num_layers)
            if f"joint_blocks.{index}.x_block.attn2.qkv.weight" in weights
        ),
    }


def num_blocks(weights: Weights) -> int:
    """How many transformer blocks there are."""
    return weights.count(r"joint_blocks\.(\d+)\.")


def rename_mmdit(weights: Weights) -> dict[str, torch.Tensor]:
    """The tensors under diffusers' names: fused matrices split, (shift, scale) swapped.

    Raises: ModelFileProblem: a fused matrix can't be split.
    """
    last = num_blocks(weights) - 1
    renamed: dict[str, torch.Tensor] = {}
    for name, tensor in weights.tensors.items():
        own = mmdit_names(name)
        if len(own) > 1:
            if not tensor.dim() or len(tensor) % len(own):
                reason = f"the weight {weights.prefix}{name} is not {len(own)} matrices of one size"
                raise problem(weights.file.path, reason)
            renamed.update(zip(own, tensor.chunk(len(own)), strict=True))
        else:
            renamed[own[0]] = _swapped(tensor) if _is_swapped(name, last) else tensor
    return renamed


def mmdit_names(name: str) -> tuple[str, ...]:
    """diffusers' names for a weight of the original layout: several share the rows of a fused one.

    A name that is none of the layout stays as it is.
    """
    stem, _, leaf = name.rpartition(".")
    if name == "pos_embed":
        return ("pos_embed.pos_embed",)
    if stem in _TOP:
        return (f"{_TOP[stem]}.{leaf}",)
    if stem == _FINAL_MODULATION:
        return (f"norm_out.linear.{leaf}",)
    match = _BLOCK.fullmatch(stem)
    if match is None:
        return (name,)
    block, side, part = match.groups()
    return tuple(f"transformer_blocks.{block}.{own}.{leaf}" for own in _parts(part, side))


def original_modules(num_blocks: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Modules of the original layout, and those of diffusers that have their rows, in equal shares.

    The modulations whose halves diffusers has the other way are left out.
    """
    yield from ((original, (own,)) for original, own in _TOP.items())
    for block, side, part in product(range(num_blocks), _QKV, _PARTS):
        stem = f"joint_blocks.{block}.{side}_block.{part}"
        if not _is_swapped(f"{stem}.", num_blocks - 1):
            names = mmdit_names(f"{stem}.weight")
            yield stem, tuple(name.removesuffix(".weight") for name in names)


def _parts(part: str, side: str) -> tuple[str, ...]:
    """What diffusers calls a module of a block."""
    attention, _, inner = part.partition(".")
    if inner == "qkv":
        return tuple(f"{attention}.{name}" for name in _QKV[side])
    if inner == "proj":
        return (f"{attention}.{_OUTPUT[side]}",)
    if inner.startswith("ln_"):
        return (part.replace(".ln_", _NORM[side]),)
    if attention == "adaLN_modulation":
        return (f"norm1{_SUFFIX[side]}.linear",)
    if part in ("mlp.fc1", "mlp.fc2"):
        return (f"ff{_SUFFIX[side]}.net.{'0.proj' if inner == 'fc1' else '2'}",)
    return (part,)


def _is_swapped(name: str, last: int) -> bool:
    """Whether diffusers has the halves of a modulation the other way: the final ones."""
    return name.startswith(
        (f"{_FINAL_MODULATION}.", f"joint_blocks.{last}.context_block.adaLN_modulation.")
    )


def _swapped(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat(tensor.chunk(2)[::-1])
