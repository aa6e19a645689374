"""Lists of sigmas cut, turned, set and filled: what nodes make of SIGMAS."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final

Sigmas = tuple[float, ...]
NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")
FLIPPED_FIRST: Final = 0.0001  # a list that would start at 0 starts here

SPACINGS: Final[Mapping[str, Callable[[float], float]]] = MappingProxyType(
    {
        "linear": lambda share: share,
        "cosine": lambda share: math.sin(share * math.pi / 2.0),
        "sine": lambda share: 1.0 - math.cos(share * math.pi / 2.0),
    }
)


def split(sigmas: Sigmas, step: int) -> tuple[Sigmas, Sigmas]:
    """The steps before `step`, and those from it on; both have the sigma between."""
    return sigmas[: step + 1], sigmas[step:]


def split_by_share(sigmas: Sigmas, denoise: float) -> tuple[Sigmas, Sigmas]:
    """The last share `denoise` of the steps, behind the others."""
    num_last = round(max(len(sigmas) - 1, 0) * denoise)
    first = sigmas[:-num_last] if num_last else ()
    return first, sigmas[-(num_last + 1) :]


def flipped(sigmas: Sigmas) -> Sigmas:
    """From the last to the first."""
    turned = tuple(reversed(sigmas))
    return (FLIPPED_FIRST, *turned[1:]) if turned and turned[0] == 0.0 else turned


def extended(
    sigmas: Sigmas, steps: int, start_at_sigma: float, end_at_sigma: float, spacing: str
) -> Sigmas:
    """Each step that begins between two sigmas in `steps` steps; a start below 0 is no limit."""
    start = math.inf if start_at_sigma < 0.0 else start_at_sigma
    filled: list[float] = []
    for sigma, following in pairwise(sigmas):
        filled.append(sigma)
        if start >= sigma >= end_at_sigma:
            shares = (SPACINGS[spacing](index / steps) for index in range(1, steps))
            filled += [sigma + (following - sigma) * share for share in shares]
    return (*filled, *sigmas[-1:])


def written(text: str) -> Sigmas:
    """The decimal numbers of a text, in order; whatever is between them separates them."""
    return tuple(float(number) for number in NUMBER.findall(text))
