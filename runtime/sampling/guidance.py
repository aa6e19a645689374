"""Classifier-free guidance over the model calls of any number of requests, in one batch.

Source: Ho and Salimans (arXiv 2207.12598); u + (p - u) * cfg_scale, which is p at a scale of 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ..values import CondEntry, Conditioning


class Denoiser(Protocol):
    """What guidance asks of a model; `graph_import.model.Model` has it."""

    def execute_batch(self, calls: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Per call `x` [B, C, h, w] noisy and unscaled, `sigma` float, `context` [1 or B, T, W].

        Gives per call, in order, `denoised` [B, C, h, w]: the estimate of x0. How many forwards
        that takes, and what becomes of contexts of unequal length, is the family's business.
        """
        ...


@dataclass(slots=True, frozen=True)
class GuidedRow:
    """One request's evaluation: its latents, its sigma, and what steers it."""

    x: torch.Tensor
    sigma: float
    positive: Conditioning
    negative: Conditioning
    cfg_scale: float


def guide(denoiser: Denoiser, rows: Sequence[GuidedRow]) -> list[torch.Tensor]:
    """The guided estimate of x0 for each row, from a single `execute_batch`.

    A row's calls are its negative entries, then its positive ones; at a scale of exactly 1 there
    are no negative ones. Several entries on a side count equally.
    """
    calls: list[Mapping[str, object]] = []
    for row in rows:
        calls += _calls(row)
    results = iter(denoiser.execute_batch(calls))
    guided: list[torch.Tensor] = []
    for row in rows:
        negative = _mean(row.x, [_denoised(next(results)) for _ in _negative_entries(row)])
        positive = _mean(row.x, [_denoised(next(results)) for _ in row.positive.entries])
        if row.cfg_scale == 1.0:
            guided.append(positive)
        else:
            guided.append(negative + (positive - negative) * row.cfg_scale)
    return guided


def _negative_entries(row: GuidedRow) -> tuple[CondEntry, ...]:
    return () if row.cfg_scale == 1.0 else row.negative.entries


def _calls(row: GuidedRow) -> list[Mapping[str, object]]:
    entries = (*_negative_entries(row), *row.positive.entries)
    return [{"x": row.x, "sigma": row.sigma, "context": entry.cond} for entry in entries]


def _denoised(result: Mapping[str, object]) -> torch.Tensor:
    denoised = result["denoised"]
    if not isinstance(denoised, torch.Tensor):
        raise TypeError(f"a denoiser gave {type(denoised).__name__} for 'denoised'")
    return denoised


def _mean(x: torch.Tensor, estimates: list[torch.Tensor]) -> torch.Tensor:
    """The mean of the estimates on x's device; a side without conditionings predicts 0."""
    if not estimates:
        return torch.zeros_like(x)
    total = estimates[0].to(x.device)
    for estimate in estimates[1:]:
        total = total + estimate.to(x.device)
    return total if len(estimates) == 1 else total / len(estimates)
