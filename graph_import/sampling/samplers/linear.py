"""Sums of arrays times numbers, without passes over the arrays that change nothing."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import Array


def scaled(array: Array, factor: float) -> Array:
    """The array times `factor`; the array itself where that is 1."""
    return array if factor == 1.0 else array * factor


def summed(x: Array, arrays: Iterable[Array], weights: Iterable[float]) -> Array:
    """x plus the arrays, each times its weight; those that have no weight are left out."""
    for array, weight in zip(arrays, weights, strict=False):
        if weight != 0.0:
            x = x + scaled(array, weight)
    return x
