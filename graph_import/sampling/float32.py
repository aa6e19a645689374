"""Numbers as float32 holds them."""

from __future__ import annotations

import struct


def float32(value: float) -> float:
    """The float32 nearest to `value`."""
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)
