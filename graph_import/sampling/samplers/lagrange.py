"""Polynomials through known points, as the weights of the values there."""

from __future__ import annotations

from collections.abc import Sequence


def basis(nodes: Sequence[float]) -> list[list[float]]:
    """Each node's Lagrange polynomial: 1 there, 0 at the others; in powers, the lowest first.

    Raises: ZeroDivisionError: two nodes are the same.
    """
    polynomials: list[list[float]] = []
    for k, node in enumerate(nodes):
        polynomial = [1.0]
        for other in (n for j, n in enumerate(nodes) if j != k):
            scale = 1.0 / (node - other)
            raised = [0.0, *polynomial]
            polynomial = [
                (a - other * b) * scale for a, b in zip(raised, [*polynomial, 0.0], strict=True)
            ]
        polynomials.append(polynomial)
    return polynomials


def lagrange_weights(nodes: Sequence[float], start: float, end: float) -> tuple[float, ...]:
    """For each node the integral, from `start` to `end`, of its Lagrange polynomial; exact."""
    width = end - start
    return tuple(
        sum(c * width ** (power + 1) / (power + 1) for power, c in enumerate(polynomial))
        for polynomial in basis([node - start for node in nodes])
    )


def distinct(nodes: Sequence[float]) -> tuple[float, ...]:
    """The nodes up to the first that was there before: a step of no length tells of no change."""
    kept: list[float] = []
    for node in nodes:
        if node in kept:
            break
        kept.append(node)
    return tuple(kept)
