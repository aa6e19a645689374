"""Layers that compute in float32 whatever their weights are held in.

A large encoder's weights stay as its file has them, half or a quarter of what float32 would take;
each layer's are float32 only while it runs. The numbers are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch

Held = list[tuple[torch.nn.Parameter, torch.Tensor]]
Scales = Mapping[torch.nn.Parameter, torch.Tensor]


def compute_in_float32(
    module: torch.nn.Module,
    layers: Iterable[torch.nn.Module],
    scales: Mapping[str, torch.Tensor],
) -> None:
    """Make these layers of `module`, none of which is inside another, compute in float32.

    Args: scales: what weights of 8 bits are multiplied by, by their names in `module`.
    """
    own = {weight: scales[name] for name, weight in module.named_parameters() if name in scales}
    for layer in layers:
        held: Held = []
        layer.register_forward_pre_hook(partial(_widen, held, own))
        layer.register_forward_hook(partial(_put_back, held), always_call=True)


def _widen(held: Held, scales: Scales, layer: torch.nn.Module, _args: Any) -> None:
    for parameter in layer.parameters():
        held.append((parameter, parameter.data))
        wide = parameter.data.to(torch.float32)
        is_scaled = parameter in scales and held[-1][1].element_size() == 1  # not a changed one
        parameter.data = wide * scales[parameter] if is_scaled else wide


def _put_back(held: Held, _layer: torch.nn.Module, _args: Any, _output: Any) -> None:
    for parameter, tensor in held:
        parameter.data = tensor
    held.clear()
