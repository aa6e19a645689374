"""Numbers as float32 holds them."""

from __future__ import annotations

import struct


def float32(value: float) -> float:
    """The float32 nearest to `value`."""
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


def spaced_float32(first: float, last: float, count: int) -> list[float]:
    """`count` evenly spaced float32 numbers from `first` to `last`; one alone is `first`.

    The spacing, too, is a float32 and is counted from the nearer end: recorded from ComfyUI 0.8.0.
    """
    if count == 1:
        return [float32(first)]
    first, last = float32(first), float32(last)
    spacing = float32((last - first) / (count - 1))
    return [
        float32(first + spacing * i if i < count // 2 else last - spacing * (count - 1 - i))
        for i in range(count)
    ]
