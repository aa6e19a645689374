"""Layers that compute in float32 whatever their weights are held in.

A large encoder's weights stay as its file has them, half or a quarter of what float32 would take;
each layer's are float32 only while it runs. The numbers are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

Held = list[tuple[torch.nn.Parameter, torch.Tensor]]


def compute_in_float32(layers: Iterable[torch.nn.Module]) -> None:
    """Make these layers, none of which is inside another, compute in float32."""
    for layer in layers:
        held: Held = []
        layer.register_forward_pre_hook(partial(_widen, held))
        layer.register_forward_hook(partial(_put_back, held), always_call=True)


def _widen(held: Held, layer: torch.nn.Module, _args: Any) -> None:
    for parameter in layer.parameters():
        held.append((parameter, parameter.data))
        parameter.data = parameter.data.to(torch.float32)


def _put_back(held: Held, _layer: torch.nn.Module, _args: Any, _output: Any) -> None:
    for parameter, tensor in held:
        parameter.data = tensor
    held.clear()
