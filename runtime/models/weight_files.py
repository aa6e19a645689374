"""Files of weights, read with suspicion: identity and safetensors header, no tensors, no torch.

Which family a file belongs to is told by `headers.py`. The format: 8 bytes of header length (little
endian), a JSON object of tensor name -> dtype, shape, data_offsets, the tensors without holes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from ...graph_import.errors import ModelFileProblem
from ...graph_import.handles import FileIdentity

MAX_HEADER_BYTES: Final = 100_000_000  # the format's own limit
MAX_DIMS: Final = 8
_LENGTH_BYTES: Final = 8

DTYPE_BITS: Final = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
}
DTYPE_NAMES: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}

_PICKLE_SUFFIXES: Final = frozenset({".ckpt", ".pt", ".pth", ".bin", ".pkl"})
_PICKLE_STARTS: Final = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_REFUSE_PICKLE: Final = (
    "this file would have to be unpickled, which can run code; convert it to safetensors"
)


class TensorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor as the header declares it; the offsets count from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """A checked header: every tensor lies wholly in the file, and nothing else does."""

    file: FileIdentity
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]


def problem(path: str | Path, reason: str) -> ModelFileProblem:
    """The error that names a file and what is wrong with it."""
    return ModelFileProblem(f"{path}: {reason}", file=str(path), reason=reason)


def identify(path: Path) -> FileIdentity:
    """The file's identity now, with its real path. Raises: ModelFileProblem: missing, no file."""
    try:
        real = path.resolve(strict=True)
        status = real.stat()
    except (OSError, RuntimeError, ValueError) as error:
        raise problem(path, "there is no such file") from error
    if not real.is_file():
        raise problem(path, "this is not a file")
    return FileIdentity(path=str(real), size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)


def check_unchanged(file: FileIdentity) -> None:
    """Raises: ModelFileProblem: the file is gone or no longer the one that was looked at."""
    if identify(Path(file.path)) != file:
        raise problem(file.path, "the file was changed after the request was accepted")


def read_header(path: Path) -> Header:
    """Read and check the header of a safetensors file.

    Raises: ModelFileProblem: missing, empty, truncated, no safetensors file, needs unpickling.
    """
    file = identify(path)
    if path.suffix.lower() in _PICKLE_SUFFIXES:
        raise problem(path, _REFUSE_PICKLE)
    if file.size_bytes == 0:
        raise problem(path, "the file is empty")
    try:
        with open(file.path, "rb") as stream:
            start = stream.read(_LENGTH_BYTES)
            length = _header_length(path, start, file.size_bytes)
            text = stream.read(length)
    except OSError as error:
        raise problem(path, f"it can't be read: {os.strerror(error.errno or 0)}") from error
    if len(text) != length:
        raise problem(path, "the file is truncated: it ends inside its header")
    tensors, metadata = _parse(path, text)
    _check_layout(path, tensors, file.size_bytes - _LENGTH_BYTES - length)
    return Header(file=file, tensors=tensors, metadata=metadata)


def _header_length(path: Path, start: bytes, size_bytes: int) -> int:
    if start.startswith(_PICKLE_STARTS):
        raise problem(path, _REFUSE_PICKLE)
    if len(start) < _LENGTH_BYTES:
        raise problem(path, f"the file is truncated: it has only {size_bytes} bytes")
    length = int.from_bytes(start, "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise problem(path, "this is not a safetensors file (its header length makes no sense)")
    if length > size_bytes - _LENGTH_BYTES:
        raise problem(path, "the file is truncated: it ends inside its header")
    return length


def _parse(path: Path, text: bytes) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    try:
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        metadata = msgspec.json.decode(raw.pop("__metadata__", b"{}"), type=dict[str, str])
        tensors = {name: msgspec.json.decode(entry, type=TensorInfo) for name, entry in raw.items()}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise problem(path, f"this is not a safetensors file (its header: {error})") from error
    if not tensors:
        raise problem(path, "the file holds no tensors")
    return tensors, metadata


def _check_layout(path: Path, tensors: Mapping[str, TensorInfo], data_bytes: int) -> None:
    """The tensors must follow one another without holes up to the end of the file."""
    end = 0
    for name, info in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        bits = DTYPE_BITS.get(info.dtype)
        if bits is None:
            raise problem(path, f"tensor {name[:80]!r} has the unknown dtype {info.dtype[:20]!r}")
        if len(info.shape) > MAX_DIMS or min(info.shape, default=0) < 0:
            raise problem(path, f"tensor {name[:80]!r} has an impossible shape")
        begin, stop = info.data_offsets
        if begin != end or stop - begin != math.prod(info.shape) * bits // 8:
            raise problem(path, f"tensor {name[:80]!r} doesn't lie where the header says")
        end = stop
    if end > data_bytes:
        raise problem(
            path, f"the file is truncated: {end - data_bytes} bytes of its tensors are missing"
        )
    if end < data_bytes:
        raise problem(path, f"{data_bytes - end} bytes at its end belong to no tensor")
