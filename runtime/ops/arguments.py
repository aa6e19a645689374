"""An op's arguments, taken by name with the type that the body needs.

Lowering has checked what a client may say; a wrong type here comes from another node's value.
"""

from __future__ import annotations

from typing import TypeVar

import torch

from ...graph_import.model import Model
from ..errors import NodeFailed
from .base import OpCall, OpContext

T = TypeVar("T")


def argument(call: OpCall, name: str, kind: type[T]) -> T:
    """The argument `name`, fetched if it is deferred. Raises: NodeFailed: missing, another type."""
    value = call.args.get(name)
    if callable(value):
        value = value()
    is_bool_for_int = kind is int and isinstance(value, bool)
    if not isinstance(value, kind) or is_bool_for_int:
        raise NodeFailed(
            f"input {name} must be {kind.__name__}, not {type(value).__name__}", input=name
        )
    return value


def numbered(call: OpCall, stem: str, kind: type[T]) -> list[T]:
    """The arguments `stem_N` that there are, by their numbers. Raises: NodeFailed."""
    numbers = (name.removeprefix(f"{stem}_") for name in call.args if name.startswith(f"{stem}_"))
    found = sorted(int(number) for number in numbers if number.isdecimal())
    return [argument(call, f"{stem}_{number}", kind) for number in found]


def number(call: OpCall, name: str) -> float:
    """The FLOAT `name`; a whole number will do. Raises: NodeFailed."""
    value = call.args.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return argument(call, name, float)


def mask_argument(call: OpCall, name: str) -> torch.Tensor:
    """A MASK, float32 [B, H, W]; a single [H, W] gets its B. Raises: NodeFailed."""
    mask = argument(call, name, torch.Tensor)
    mask = mask.unsqueeze(0) if mask.dim() == 2 else mask
    if mask.dim() != 3 or 0 in mask.shape:
        raise NodeFailed(
            f"input {name} must be masks [B, H, W], not a tensor of shape {list(mask.shape)}",
            input=name,
        )
    return mask


def image_argument(call: OpCall, name: str) -> torch.Tensor:
    """An IMAGE, float32 [B, H, W, C] with 1, 3 or 4 channels. Raises: NodeFailed."""
    image = argument(call, name, torch.Tensor)
    if image.dim() != 4 or image.shape[3] not in (1, 3, 4) or 0 in image.shape:
        raise NodeFailed(
            f"input {name} must be pictures [B, H, W, C], not a tensor of shape "
            f"{list(image.shape)}",
            input=name,
        )
    return image


def loaded(context: OpContext) -> Model:
    """The batch's model. Raises: NodeFailed: the node was sent without one."""
    if context.model is None:
        raise NodeFailed("this node needs a model and was sent without one")
    return context.model
