"""Ways of guiding a denoiser by several conditionings, and the changes that a model asks of that.

Only their names and numbers, which travel in params and in options of a `ModelRef`; the tensors'
arithmetic is in executors (`runtime/sampling/guidance.py`, `cfg_patches.py`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

CFG_PATCHES: Final = "cfg_patches"  # option of a denoiser: `patches_text`


class GuiderKind(StrEnum):
    """What becomes of the sides' estimates: p(ositive), n(egative) and the third side's, t."""

    CFG = "cfg"  # n + (p - n) * cfg
    BASIC = "basic"  # p
    DUAL = "dual"  # n + (t - n) * cfg_third + (p - t) * cfg
    NESTED = "nested"  # n + (t + (p - t) * cfg - n) * cfg_third
    PERP_NEG = "perp_neg"  # t + ((p - t) - cfg_third * what of (n - t) is no (p - t)) * cfg


class CfgPatch(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A change of the guidance: its ComfyUI class and the numbers of its inputs, by name."""

    name: str
    numbers: tuple[tuple[str, float], ...] = ()

    def number(self, name: str) -> float:
        """The number called `name`. Raises: KeyError."""
        return dict(self.numbers)[name]


_DECODER: Final = msgspec.json.Decoder(tuple[CfgPatch, ...])


def patches_text(patches: tuple[CfgPatch, ...]) -> str:
    """The text of patches, in the order that they were put on."""
    return msgspec.json.encode(patches).decode()


def cfg_patches(text: str) -> tuple[CfgPatch, ...]:
    """The patches of a text; an empty one has none. Raises: msgspec.ValidationError."""
    return _DECODER.decode(text) if text else ()
