"""Samplers by ComfyUI's names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..base import Sampler
from .dpmpp import Dpmpp2M
from .euler import Euler, EulerAncestral
from .heun import Heun

_BY_NAME: Final[Mapping[str, Sampler]] = MappingProxyType(
    {item.name: item for item in (Euler(), EulerAncestral(), Heun(), Dpmpp2M())}
)
SAMPLER_NAMES: Final = tuple(_BY_NAME)  # in ComfyUI's order


def sampler(name: str) -> Sampler:
    """The sampler called `name`. Raises: KeyError: there is none."""
    return _BY_NAME[name]
