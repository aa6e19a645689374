"""Calls of an evaluation whose entries have hooks: they run on a denoiser under other LoRAs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..sampling.calls import PlannedCall
from ..sampling.guidance import GuidedRow, evaluate
from ..values import Estimates
from .arguments import loaded, numbered
from .base import OpCall, OpContext, OpResult
from .turns import turn_of


def denoise_hooked(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The estimates of the calls whose entries have these hooks, all of them and no others.

    In strict mode every call is a batch of its own.
    """
    groups = [[call] for call in calls] if ctx.is_strict else [list(calls)]
    results: list[OpResult] = []
    for group in groups:
        ctx.check_cancelled()
        asked = [_asked(call) for call in group]
        for (_, plan, _), found in zip(asked, evaluate(loaded(ctx), asked), strict=True):
            by_position: list[torch.Tensor | None] = [found.get(i) for i in range(len(plan))]
            results.append(OpResult(outputs=(Estimates(calls=tuple(by_position)),)))
    return results


def _asked(call: OpCall) -> tuple[GuidedRow, list[PlannedCall], set[int]]:
    """The evaluation, its plan, and which positions of it are asked for."""
    row, markers = turn_of(call).row, tuple(numbered(call, "hook", str))
    plan = row.plan()
    return row, plan, {i for i, planned in enumerate(plan) if planned.entry.hooks == markers}
