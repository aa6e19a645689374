"""Guidance over the model calls of any number of requests, in one batch.

Which sides an evaluation asks for, and what becomes of their estimates; `cfg_patches.py` has the
changes that a model asks of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Protocol

import torch

from ...graph_import.families import Family
from ...graph_import.sampling.guiders import CfgPatch, GuiderKind
from ...graph_import.sampling.model_sampling import ModelSampling
from ..values import CondEntry, Conditioning
from .calls import PlannedCall, plan_calls
from .cfg_patches import Guided, after_guidance, guided

# Where no entry counts the sum of weights is this: an estimate of 0, not a division by 0.
NO_WEIGHT: Final = 1e-37
POSITIVE: Final = 0
NEGATIVE: Final = 1
THIRD: Final = 2

# Given a row's calls, what each one's ControlNets add to it (None: nothing), in order.
ResidualSource = Callable[[Sequence[PlannedCall]], Sequence[object | None]]


class Denoiser(Protocol):
    """What guidance asks of a model; `graph_import.model.Model` has it."""

    def execute_batch(self, calls: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Per call `x` [B, C, h, w] noisy and unscaled, `sigma` float, `context` [1 or B, T, W].

        And `pooled` [1 or B, W] or None. A call may have `residuals`, and `extra_channels`, which
        give [B, more, h, w] to networks that take more than x. Gives per call, in order,
        `denoised` [B, C, h, w]: the estimate of x0. How many forwards that takes, and what becomes
        of contexts of unequal length, is the family's business.
        """
        ...


@dataclass(slots=True, frozen=True)
class GuidedRow:
    """One request's evaluation: the model's input, its sigma, and what steers it.

    Args:
        model_sampling: how the denoiser measures noise; None: as its family does.
        third: the third side, and `cfg_third` its number, of the guiders that have one.
        is_negative_needed: the sampler wants the negative estimate at any scale.
        memory: what the guidance left at the run's last evaluation.
        estimates: of calls that are evaluated elsewhere, by position in the plan.
        extra_channels: what an entry gives to a network that takes more channels than x has.
    """

    x: torch.Tensor
    sigma: float
    positive: Conditioning
    negative: Conditioning
    cfg_scale: float
    family: Family
    residuals: ResidualSource | None = None
    model_sampling: ModelSampling | None = None
    guider: GuiderKind = GuiderKind.CFG
    third: Conditioning | None = None
    cfg_third: float = 1.0
    is_negative_needed: bool = False
    memory: torch.Tensor | None = None
    estimates: Mapping[int, torch.Tensor] = field(default_factory=dict)
    extra_channels: Callable[[CondEntry], torch.Tensor] | None = None

    @property
    def sampling(self) -> ModelSampling:
        """How the denoiser measures noise."""
        return self.model_sampling or self.family.model_sampling

    def asked_sides(self) -> frozenset[int]:
        """The sides whose estimates have a say."""
        sides = {POSITIVE}
        match self.guider:
            case GuiderKind.CFG:
                sides |= {NEGATIVE} if self.cfg_scale != 1.0 else set()
            case GuiderKind.DUAL | GuiderKind.NESTED:
                if (self.cfg_scale, self.cfg_third) != (1.0, 1.0):
                    sides |= {NEGATIVE, THIRD}
            case GuiderKind.PERP_NEG:
                sides |= {NEGATIVE, THIRD} if self.cfg_third else {THIRD}
            case GuiderKind.BASIC:
                return frozenset(sides)
        return frozenset(sides | {NEGATIVE} if self.is_negative_needed else sides)

    def plan(self) -> list[PlannedCall]:
        """The calls of the evaluation; a ControlNet's node finds the same ones."""
        sides = (self.positive, self.negative, *((self.third,) if self.third else ()))
        return plan_calls(self.x, self.sigma, sides, self.asked_sides(), self.sampling)


@dataclass(slots=True, frozen=True)
class Guidance:
    """What guidance gives for a row.

    Args:
        denoised: the guided estimate of x0, [B, C, h, w].
        negative: the negative side's, or None where it wasn't asked for.
        memory: for the run's next evaluation.
    """

    denoised: torch.Tensor
    negative: torch.Tensor | None
    memory: torch.Tensor | None


def guide(
    denoiser: Denoiser, rows: Sequence[GuidedRow], patches: Sequence[CfgPatch] = ()
) -> list[Guidance]:
    """The guided estimate of x0 for each row, from a single `execute_batch`.

    A row's calls are those of its plan, in that order, without those that it has estimates of;
    `patches` are the denoiser's.
    """
    plans = [row.plan() for row in rows]
    wanted = [
        set(range(len(plan))) - row.estimates.keys() for row, plan in zip(rows, plans, strict=True)
    ]
    evaluated = evaluate(denoiser, list(zip(rows, plans, wanted, strict=True)))
    guidances: list[Guidance] = []
    for row, plan, own in zip(rows, plans, evaluated, strict=True):
        found = {**row.estimates, **own}
        estimates = [(call, found[position]) for position, call in enumerate(plan)]
        sides = {
            side: _combined(row.x, (item for item in estimates if item[0].side == side))
            for side in sorted(row.asked_sides())
        }
        guidances.append(_guidance(row, sides, patches))
    return guidances


def evaluate(
    denoiser: Denoiser, asked: Sequence[tuple[GuidedRow, Sequence[PlannedCall], Set[int]]]
) -> list[dict[int, torch.Tensor]]:
    """The estimates of x0, by position, of the calls at some positions of each row's plan."""
    requests = [
        (index, position, request)
        for index, (row, plan, positions) in enumerate(asked)
        for position, request in enumerate(_requests(row, plan) if positions else ())
        if position in positions
    ]
    results = denoiser.execute_batch([r for _, _, r in requests]) if requests else []
    found: list[dict[int, torch.Tensor]] = [{} for _ in asked]
    for (index, position, _), result in zip(requests, results, strict=True):
        found[index][position] = _denoised(result)
    return found


def _guidance(
    row: GuidedRow, sides: Mapping[int, torch.Tensor], patches: Sequence[CfgPatch]
) -> Guidance:
    negative = sides.get(NEGATIVE)
    estimates = Guided(
        x=row.x,
        sigma=row.sigma,
        sampling=row.sampling,
        cfg_scale=row.cfg_scale,
        positive=sides[POSITIVE],
        negative=negative if row.guider is GuiderKind.CFG and row.cfg_scale != 1.0 else None,
        memory=row.memory,
    )
    if row.guider is GuiderKind.CFG or THIRD not in sides:
        denoised, seen = guided(estimates, patches)
        return Guidance(denoised, negative, seen.memory)
    denoised = after_guidance(_of_three(row, sides), estimates, patches)
    return Guidance(denoised, negative, row.memory)


def _of_three(row: GuidedRow, sides: Mapping[int, torch.Tensor]) -> torch.Tensor:
    """Source: composable diffusion (arXiv 2206.01714) for the dual ones."""
    positive, third, negative = sides[POSITIVE], sides[THIRD], sides.get(NEGATIVE)
    if row.guider is GuiderKind.PERP_NEG:
        return _perp_neg(row, positive, third, negative)
    if negative is None:
        raise TypeError(f"a {row.guider} guider without a negative side")
    if row.guider is GuiderKind.DUAL:
        return negative + (third - negative) * row.cfg_third + (positive - third) * row.cfg_scale
    inner = third + (positive - third) * row.cfg_scale
    return negative + (inner - negative) * row.cfg_third


def _perp_neg(
    row: GuidedRow, positive: torch.Tensor, empty: torch.Tensor, negative: torch.Tensor | None
) -> torch.Tensor:
    """What of the negative side isn't along the positive one is subtracted.

    Lengths are of the whole batch, as recorded. Source: Perp-Neg (arXiv 2304.04968).
    """
    towards = positive - empty
    if negative is None:
        return empty + towards * row.cfg_scale
    away = negative - empty
    across = away - ((away * towards).sum() / (towards * towards).sum()) * towards
    return empty + (towards - across * row.cfg_third) * row.cfg_scale


def _requests(row: GuidedRow, plan: Sequence[PlannedCall]) -> list[Mapping[str, object]]:
    residuals = [None] * len(plan) if row.residuals is None else row.residuals(plan)
    return [
        {
            "x": call.crop(row.x),
            "sigma": row.sigma,
            "context": call.entry.cond,
            "pooled": call.entry.pooled,
            **({} if residual is None else {"residuals": residual}),
            **_extra_channels(row, call),
        }
        for call, residual in zip(plan, residuals, strict=True)
    ]


def _extra_channels(row: GuidedRow, call: PlannedCall) -> Mapping[str, object]:
    """They are made when a network asks for them: most don't."""
    source = row.extra_channels
    if source is None:
        return {}
    return {"extra_channels": lambda: call.crop(source(call.entry))}


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
