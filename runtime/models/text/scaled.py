"""Weights of 8 bits with a scale for each matrix, as some files of large encoders hold them.

They count as what they stand for, in float32: rounding that to 16 bits costs 1.6e-3 of the result.
Source: design notes on models, section 5; FP8 formats (arXiv 2209.05433).
"""

from __future__ import annotations

from typing import Final

import torch

from ..checkpoint import Weights
from ..weight_files import problem

SCALES: Final = ("scale_weight", "weight_scale")
# What tells how activations may be rounded for arithmetic in 8 bits, and marks of such files.
_LEFT_OUT: Final = ("scale_input", "input_scale", "comfy_quant", "scaled_fp8")


def split_scales(weights: Weights, late: str | None) -> tuple[Weights, dict[str, torch.Tensor]]:
    """The weights without their scales, and the scales by the names of their weights.

    Args:
        late: the beginning of the names whose scales are given back, so that they are multiplied
            in when the weight is used. Those of all others are multiplied in here.
    Raises: ModelFileProblem: a scale is for a weight that isn't there or isn't of 8 bits.
    """
    scales: dict[str, torch.Tensor] = {}
    others: dict[str, torch.Tensor] = {}
    for name, tensor in weights.tensors.items():
        stem, _, leaf = name.rpartition(".")
        if leaf in SCALES:
            scales[f"{stem}.weight"] = tensor
        elif leaf not in _LEFT_OUT:
            others[name] = tensor
    kept: dict[str, torch.Tensor] = {}
    for name, scale in scales.items():
        weight = others.get(name)
        is_known = weight is not None and weight.is_floating_point() and weight.element_size() == 1
        if weight is None or not is_known or scale.numel() != 1:
            raise problem(
                weights.file.path, f"the weight {name} is scaled in a way that isn't supported"
            )
        number = scale.to(torch.float32, copy=True).reshape(())
        if late is not None and name.startswith(late):
            kept[name] = number
        else:
            others[name] = weight.to(torch.float32) * number
    return Weights(file=weights.file, prefix=weights.prefix, tensors=others), kept
