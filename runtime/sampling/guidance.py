"""Classifier-free guidance over the model calls of any number of requests, in one batch.

Source: Ho and Salimans (arXiv 2207.12598); u + (p - u) * cfg_scale, which is p at a scale of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch

from ...graph_import.families import Family
from ..values import Conditioning
from .calls import PlannedCall, plan_calls

# Where no entry counts the sum of weights is this: an estimate of 0, not a division by 0.
NO_WEIGHT: Final = 1e-37

# Given a row's calls, what each one's ControlNets add to it (None: nothing), in order.
ResidualSource = Callable[[Sequence[PlannedCall]], Sequence[object | None]]


class Denoiser(Protocol):
    """What guidance asks of a model; `graph_import.model.Model` has it."""

    def execute_batch(self, calls: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Per call `x` [B, C, h, w] noisy and unscaled, `sigma` float, `context` [1 or B, T, W].

        A call may have `residuals`. Gives per call, in order, `denoised` [B, C, h, w]: the estimate
        of x0. How many forwards that takes, and what becomes of contexts of unequal length, is the
        family's business.
        """
        ...


@dataclass(slots=True, frozen=True)
class GuidedRow:
    """One request's evaluation: the model's input, its sigma, and what steers it."""

    x: torch.Tensor
    sigma: float
    positive: Conditioning
    negative: Conditioning
    cfg_scale: float
    family: Family
    residuals: ResidualSource | None = None


def guide(denoiser: Denoiser, rows: Sequence[GuidedRow]) -> list[torch.Tensor]:
    """The guided estimate of x0 for each row, from a single `execute_batch`.

    A row's calls are those of `plan_calls`, in its order.
    """
    plans = [
        plan_calls(row.x, row.sigma, row.positive, row.negative, row.cfg_scale, row.family)
        for row in rows
    ]
    requests = [
        request for row, plan in zip(rows, plans, strict=True) for request in _requests(row, plan)
    ]
    results = iter(denoiser.execute_batch(requests) if requests else ())
    guided: list[torch.Tensor] = []
    for row, plan in zip(rows, plans, strict=True):
        estimates = [(call, _denoised(next(results))) for call in plan]
        positive = _combined(row.x, (item for item in estimates if not item[0].is_negative))
        if row.cfg_scale == 1.0:
            guided.append(positive)
        else:
            negative = _combined(row.x, (item for item in estimates if item[0].is_negative))
            guided.append(negative + (positive - negative) * row.cfg_scale)
    return guided


def _requests(row: GuidedRow, plan: Sequence[PlannedCall]) -> list[Mapping[str, object]]:
    residuals = [None] * len(plan) if row.residuals is None else row.residuals(plan)
    return [
        {
            "x": call.crop(row.x),
            "sigma": row.sigma,
            "context": call.entry.cond,
            **({} if residual is None else {"residuals": residual}),
        }
        for call, residual in zip(plan, residuals, strict=True)
    ]


def _denoised(result: Mapping[str, object]) -> torch.Tensor:
    denoised = result["denoised"]
    if not isinstance(denoised, torch.Tensor):
        raise TypeError(f"a denoiser gave {type(denoised).__name__} for 'denoised'")
    return denoised


def _combined(
    x: torch.Tensor, estimates: Iterable[tuple[PlannedCall, torch.Tensor]]
) -> torch.Tensor:
    """One side's estimate: the mean of its calls' by their weights, on x's device."""
    total, weight = torch.zeros_like(x), torch.full_like(x, NO_WEIGHT)
    for call, estimate in estimates:
        multiplier = call.multiplier
        if isinstance(multiplier, torch.Tensor):
            multiplier = multiplier.to(x.device)
        part = call.crop(total)
        part += estimate.to(x.device) * multiplier
        part = call.crop(weight)
        part += multiplier
    return total / weight
