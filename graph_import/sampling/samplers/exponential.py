"""The functions of exponential integrators."""

from __future__ import annotations

import math


def h_phi_1(h: float) -> float:
    """h * phi_1(h) = e^h - 1. Source: Hochbruck and Ostermann, Acta Numerica 2010, section 2."""
    return math.expm1(h)


def h_phi_2(h: float) -> float:
    """h * phi_2(h) = (e^h - 1 - h) / h."""
    return (math.expm1(h) - h) / h if h else 0.0
