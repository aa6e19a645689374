"""An exception of a node as clients are told of it. Source: spec comfyui-api/api.md, section 3."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Final

import msgspec
import torch

from ...graph_import.errors import NodeloomError
from ...graph_import.handles import Scalar
from ..errors import NodeFailed, OutOfMemory
from ..protocol import ErrorReport

MAX_TEXT: Final = 10_000  # characters of a message or an input; the rest is cut off
MAX_FRAMES: Final = 50

# torch raises a plain RuntimeError where the CPU allocator fails; only its text tells.
_CPU_ALLOCATOR: Final = "DefaultCPUAllocator"


def error_report(problem: BaseException, args: Mapping[str, object]) -> ErrorReport:
    """What went wrong in a call with these arguments."""
    return ErrorReport(
        code=_code(problem),
        exception_type=_type_name(type(problem)),
        message=str(problem)[:MAX_TEXT],
        traceback=tuple(traceback.format_tb(problem.__traceback__, limit=-MAX_FRAMES)),
        current_inputs={name: _listed(value) for name, value in args.items()},
    )


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether an allocation failed, in Python, torch or a budget of ours."""
    if isinstance(problem, MemoryError | torch.OutOfMemoryError | OutOfMemory):
        return True
    return isinstance(problem, RuntimeError) and _CPU_ALLOCATOR in str(problem)


def _code(problem: BaseException) -> str:
    if is_out_of_memory(problem):
        return OutOfMemory.code
    return problem.code if isinstance(problem, NodeloomError) else NodeFailed.code


def _type_name(cls: type) -> str:
    if cls.__module__ == "builtins":
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"


def _listed(value: object) -> list[Scalar]:
    if isinstance(value, tuple) and all(isinstance(item, float) for item in value):
        return list(value)
    if isinstance(value, str):
        return [value[:MAX_TEXT]]
    if value is None or isinstance(value, bool | int | float):
        return [value]
    return [_described(value)]


def _described(value: object) -> str:
    """`Latent([1, 4, 8, 8])`: a value's type and the shapes of its tensors."""
    if isinstance(value, torch.Tensor | msgspec.Struct):
        shapes = ", ".join(str(list(tensor.shape)) for tensor in _tensors_of(value))
        return f"{type(value).__name__}({shapes})"
    return f"<{type(value).__name__}>"


def _tensors_of(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, msgspec.Struct):
        value = tuple(getattr(value, name) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        return [tensor for item in value for tensor in _tensors_of(item)]
    return []
