"""Random weights by specification: tensor names, shapes and spreads, and the numbers for them.

A value depends on the seed, its tensor's name and its place alone, so the bytes are the same on
every machine, and adding a tensor changes no other.
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

_CHUNK: Final = 1 << 22

Tensors = dict[str, NDArray[np.float16]]


class Spec(dict[str, tuple[tuple[int, ...], float, float]]):
    """Tensor name -> shape, centre and spread: its values are centre + spread * uniform."""

    def weight(self, name: str, *shape: int, gain: float = 1.0) -> None:
        """A matrix or kernel that keeps the variance of its input, times `gain` squared."""
        self[name] = (shape, 0.0, gain * math.sqrt(3.0 / math.prod(shape[1:])))

    def noise(self, name: str, *shape: int, std: float) -> None:
        """Values around 0 with this deviation."""
        self[name] = (shape, 0.0, std * math.sqrt(3.0))

    def linear(
        self, name: str, inner: int, outer: int, *, bias: bool = True, gain: float = 1.0
    ) -> None:
        self.weight(f"{name}.weight", outer, inner, gain=gain)
        if bias:
            self[f"{name}.bias"] = ((outer,), 0.0, 0.05)

    def conv(
        self, name: str, inner: int, outer: int, *, kernel: int = 3, gain: float = 1.0
    ) -> None:
        self.weight(f"{name}.weight", outer, inner, kernel, kernel, gain=gain)
        self[f"{name}.bias"] = ((outer,), 0.0, 0.05)

    def norm(self, name: str, width: int) -> None:
        self[f"{name}.weight"] = ((width,), 1.0, 0.1)
        self[f"{name}.bias"] = ((width,), 0.0, 0.05)


def materialise(spec: Spec, seed: int) -> Tensors:
    """The tensors of a specification, float16."""
    tensors: Tensors = {}
    for name, (shape, centre, spread) in spec.items():
        values = _uniform(name, math.prod(shape), seed)
        values *= np.float32(spread)
        values += np.float32(centre)
        tensors[name] = values.astype(np.float16).reshape(shape)
    return tensors


def _uniform(name: str, count: int, seed: int) -> NDArray[np.float32]:
    """Numbers in (-1, 1), exact multiples of 2**-23, from a 32-bit hash of seed, name and place."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    first, second = (np.uint32(word) for word in struct.unpack("<II", digest[:8]))
    values = np.empty(count, np.float32)
    for start in range(0, count, _CHUNK):
        stop = min(start + _CHUNK, count)
        words = _mix(_mix(np.arange(start, stop, dtype=np.uint32) + first) ^ second)
        integers = 2 * (words >> np.uint32(9)).astype(np.int32) + 1 - (1 << 23)
        values[start:stop] = integers.astype(np.float32) * np.float32(2.0**-23)
    return values


def _mix(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A 32-bit integer hash; products wrap around."""
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    words = (words ^ (words >> np.uint32(15))) * np.uint32(0x735A2D97)
    return words ^ (words >> np.uint32(15))
