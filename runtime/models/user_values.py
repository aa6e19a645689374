"""What models of users' own are given and may give back: values of the declared types.

They get copies: text that writes into what it was given must not change what others read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import torch

from ...graph_import.handles import IoSpec
from ...graph_import.types import BOOLEAN, CONDITIONING, FLOAT, IMAGE, INT, LATENT, MASK, STRING
from ..errors import NodeFailed
from ..values import Conditioning, Latent, Value, flatten, unflatten

VALUES_DEVICE: Final = "cpu"  # what goes over edges
CHANNELS: Final = (1, 3, 4)
MIN_INT: Final = -(2**63)  # what messages carry
MAX_INT: Final = 2**64 - 1


def given(specs: Sequence[IoSpec], args: Mapping[str, object], device: str) -> dict[str, object]:
    """The arguments of a call of `execute`: its own copies, on `device`; deferred ones uncalled."""
    prepared: dict[str, object] = {}
    for spec in specs:
        if spec.name not in args:
            continue
        value = args[spec.name]
        prepared[spec.name] = _later(value, device) if spec.is_deferred else _copy(value, device)
    return prepared


def taken(label: str, specs: Sequence[IoSpec], results: object) -> dict[str, Value]:
    """What `execute` returned, as edges carry it.

    Raises: NodeFailed: an output is missing, not declared, or not of its type.
    """
    if not isinstance(results, Mapping):
        kind = type(results).__name__
        raise NodeFailed(f"{label}: execute returned {kind}, not its outputs by name")
    declared = {spec.name: spec for spec in specs}
    for name in results:
        if name not in declared:
            raise NodeFailed(f"{label}: execute gave {name!r}, which setup_io does not declare")
    values: dict[str, Value] = {}
    for name, spec in declared.items():
        if name not in results:
            raise NodeFailed(f"{label}: execute gave no {name!r}", output=name)
        value = _TAKE[spec.type](results[name])
        if value is None:
            raise NodeFailed(
                f"{label}: output {name!r} must be {_WORDS[spec.type]}, "
                f"not {_described(results[name])}",
                output=name,
            )
        values[name] = value
    return values


def _later(value: object, device: str) -> Callable[[], object]:
    """A deferred input; one that is a constant is a function as well."""
    fetch: Callable[[], object] = value if callable(value) else lambda: value
    return cache(lambda: _copy(fetch(), device))


def _copy(value: Any, device: str) -> Value:
    tree, tensors = flatten(value)
    return unflatten(tree, [tensor.to(device, copy=True) for tensor in tensors])


def _image(value: Any) -> Value:
    if not _is_floats(value, 4) or value.shape[3] not in CHANNELS:
        return None
    return _settled(value)


def _mask(value: object) -> Value:
    return _settled(value) if _is_floats(value, 3) else None


def _latent(value: object) -> Value:
    if _is_floats(value, 4):
        return Latent(samples=_settled(value))
    if isinstance(value, Latent) and _is_floats(value.samples, 4):
        return _copy(value, VALUES_DEVICE)
    return None


def _conditioning(value: object) -> Value:
    return _copy(value, VALUES_DEVICE) if isinstance(value, Conditioning) else None


def _whole(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if MIN_INT <= value <= MAX_INT else None


def _number(value: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _text(value: object) -> Value:
    return value if isinstance(value, str) else None


def _switch(value: object) -> Value:
    return value if isinstance(value, bool) else None


_TAKE: Final[Mapping[str, Callable[[object], Value]]] = {
    IMAGE: _image,
    MASK: _mask,
    LATENT: _latent,
    CONDITIONING: _conditioning,
    INT: _whole,
    FLOAT: _number,
    STRING: _text,
    BOOLEAN: _switch,
}
_WORDS: Final[Mapping[str, str]] = {
    IMAGE: "pictures, floats [B, H, W, C] of 1, 3 or 4 channels",
    MASK: "masks, floats [B, H, W]",
    LATENT: "latents, or their samples, floats [B, C, h, w]",
    CONDITIONING: "a conditioning",
    INT: "a whole number of 64 bits",
    FLOAT: "a number",
    STRING: "text",
    BOOLEAN: "true or false",
}


def _is_floats(value: Any, num_dims: int) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dim() == num_dims
        and 0 not in value.shape
    )


def _settled(value: Any) -> torch.Tensor:
    """The tensor as edges carry it: float32, on the CPU, without a graph behind it."""
    tensor: torch.Tensor = value
    return tensor.detach().to(VALUES_DEVICE, torch.float32).contiguous()


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {value.dtype} {list(value.shape)}"
    return f"{type(value).__name__} {value!r:.60}"
