"""How a tensor lies in memory and on the wire: canonical strides, alignment, dtype names, bytes.

Every tensor that the plane hands out is contiguous in the canonical way and starts at a multiple
of 64 bytes, whether it is a view, an inline tensor or a fetched copy. Kernels choose their code
path by strides and alignment, and other code paths sum in another order: only so does a node give
the same bits wherever its inputs were made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch

ALIGNMENT_BYTES: Final = 64  # what torch's own CPU allocator gives

DTYPES: Final = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    )
}


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for `torch.float32`. Raises: TypeError: tensors of this dtype don't travel."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TypeError(f"tensors of {dtype} can't be carried")
    return name


def num_bytes(shape: Sequence[int], dtype: str) -> int:
    """Size of the data. Raises: ValueError: no such shape or dtype."""
    if dtype not in DTYPES or any(size < 0 for size in shape):
        raise ValueError(f"not a tensor: shape {tuple(shape)}, dtype {dtype!r}")
    return math.prod(shape) * DTYPES[dtype].itemsize


def allocate(shape: Sequence[int], dtype: str, device: str = "cpu") -> torch.Tensor:
    """A fresh tensor in canonical layout; its contents are undefined."""
    return torch.empty(tuple(shape), dtype=DTYPES[dtype], device=device)


def settle(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` itself where it is canonical, aligned and alone in its storage, else a copy.

    A view into something larger is copied too: it would keep all of that alive, and change when
    that is written to.
    """
    tensor = tensor.detach()
    is_canonical = tensor.stride() == _canonical_stride(tensor.shape) and not (
        tensor.is_conj() or tensor.is_neg()
    )
    is_alone = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.itemsize
    if is_canonical and is_alone and tensor.data_ptr() % ALIGNMENT_BYTES == 0:
        return tensor
    fresh = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return fresh.copy_(tensor)


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The data of a contiguous tensor as uint8 [n]; shares its memory."""
    return tensor.reshape(-1).view(torch.uint8)


def as_buffer(flat: torch.Tensor) -> memoryview:
    """Memory of a uint8 [n] tensor, or of its copy in host memory; keeps it alive."""
    return flat.cpu().numpy().data


def from_bytes(data: bytes, shape: Sequence[int], dtype: str, device: str = "cpu") -> torch.Tensor:
    """A fresh tensor of these bytes. Raises: ValueError: their number does not fit the shape."""
    expected = num_bytes(shape, dtype)
    if len(data) != expected:
        raise ValueError(f"{len(data)} bytes for a tensor of {expected}")
    tensor = allocate(shape, dtype)
    as_buffer(flat_bytes(tensor))[:] = data
    return tensor.to(device)


def _canonical_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides. `is_contiguous` won't do: it passes odd strides of dimensions of size 1,
    by which torch tells channels-last from channels-first."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
