"""Adams-Bashforth with the steps' own widths, as recorded.

The exact weights are `lagrange.lagrange_weights`. What ComfyUI 0.8.0 computes from the third order
on is something else: fitted to the recorded runs (least squares over the elements of a step, whose
slopes follow from the recorded estimates), its weights are those below.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .multistep import Lms


class IpndmV(Lms, frozen=True, kw_only=True):
    """The weights of uneven steps. Source: DEIS (arXiv 2204.13902), iPNDM; corrections recorded."""

    name: str = "ipndm_v"
    order: int = 4

    def _weights(self, nodes: tuple[float, ...], following: float) -> tuple[float, ...]:
        width = following - nodes[0]
        past = [newer - older for newer, older in pairwise(nodes)]
        weights = [1.0]
        for correction in (_second_order, _third_order, _fourth_order)[: len(past)]:
            changes = correction(width, past)
            weights = [a + b for a, b in zip([*weights, 0.0], changes, strict=True)]
        return tuple(weight * width for weight in weights)


def _second_order(h: float, past: Sequence[float]) -> list[float]:
    """What the second slope changes: the mean over the step of the line through the last two."""
    half = h / (2.0 * past[0])
    return [half, -half]


def _third_order(h: float, past: Sequence[float]) -> list[float]:
    """What the third slope changes.

    Exact: h (h + h1) / (h1 (h1 + h2)) times (1 - h / (3 (h + h1))) / 2. Recorded from ComfyUI
    0.8.0: the first factor multiplies the subtrahend alone.
    """
    h1, h2 = past[:2]
    change = (1.0 - h / (3.0 * (h + h1)) * h * (h + h1) / (h1 * (h1 + h2))) / 2.0
    return [change, -change * (1.0 + h1 / h2), change * h1 / h2]


def _fourth_order(h: float, past: Sequence[float]) -> list[float]:
    """What the fourth slope changes.

    Exact: the product of the three quotients times (1 - h / (3 (h + h1))) / 2 minus
    (1 - h / (2 (h + h1))) h / (6 (h + h1 + h2)), and a last weight with h2 / h3. Recorded from
    ComfyUI 0.8.0: plus, and h1 / h2, so that the weights don't add up to 1.
    """
    h1, h2, h3 = past
    two, three = h + h1, h + h1 + h2
    change = (1.0 - h / (3.0 * two)) / 2.0 + (1.0 - h / (2.0 * two)) * h / (6.0 * three)
    change *= h * two * three / (h1 * (h1 + h2) * (h1 + h2 + h3))
    near, far = h1 / h2, h1 * (h1 + h2) / (h2 * (h2 + h3))
    return [
        change,
        -change * (1.0 + near + far),
        change * (near + far * (1.0 + h2 / h3)),
        -change * far * near,
    ]
