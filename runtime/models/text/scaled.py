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


def unscaled(weights: Weights) -> Weights:
    """The weights with every scale multiplied in; the rest stays as it is.

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
    for name, scale in scales.items():
        weight = others.get(name)
        is_known = weight is not None and weight.is_floating_point() and weight.element_size() == 1
        if weight is None or not is_known or scale.numel() != 1:
            raise problem(
                weights.file.path, f"the weight {name} is scaled in a way that isn't supported"
            )
        others[name] = weight.to(torch.float32) * scale.to(torch.float32).reshape(())
    return Weights(file=weights.file, prefix=weights.prefix, tensors=others)
