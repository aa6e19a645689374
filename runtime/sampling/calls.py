"""Which calls of the model one evaluation makes: entries that count now, each on its area.

The list and its order follow from the inputs alone: a ControlNet's node and the denoiser's find the
same calls at the same positions. Source: ComfyUI 0.8.0, `conds.json` of the goldens.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import torch

from ...graph_import.sampling.model_sampling import ModelSampling
from ..values import CondEntry, Conditioning
from .areas import Area, area_of, feathering
from .masks import fitted, for_batch

SIGMA_TOLERANCE: Final = 1e-6  # relative: ComfyUI compares float32 numbers


@dataclass(slots=True, frozen=True)
class PlannedCall:
    """One call: a side's entry on the whole latents or a part of them.

    Args:
        entry: what steers the call.
        side: which side it is of, in the order that these were given.
        area: in latent units, inside the picture; None: all of it.
        multiplier: how much the estimate counts within its side; a tensor is float32
            [1 or B, 1, *area.sizes].
    """

    entry: CondEntry
    side: int
    area: Area | None
    multiplier: torch.Tensor | float

    def crop(self, x: torch.Tensor) -> torch.Tensor:
        """The call's part of latents (or of anything of their size) [..., h, w]; a view."""
        return x if self.area is None else self.area.crop(x)


@dataclass(slots=True, frozen=True)
class _Placed:
    """An entry with what the size of the latents makes of its mask and area."""

    entry: CondEntry
    mask: torch.Tensor | None
    area: Area | None


def plan_calls(
    x: torch.Tensor,
    sigma: float,
    sides: Sequence[Conditioning],
    asked: Collection[int],
    sampling: ModelSampling,
) -> list[PlannedCall]:
    """The calls for latents `x` [B, C, [frames,] h, w] at noise level `sigma`: last side's first.

    Only the sides that are `asked` for (by position) make calls; but on each, an entry of any side
    that has an area has a counterpart. An area beside the picture makes no call. Defaults come
    behind the other entries of their side, where these leave a gap.
    """
    placed_sides = [_placed(x, side) for side in sides]
    for index, side in enumerate(placed_sides):
        for other_index, other in enumerate(placed_sides):
            if other_index != index:
                other += _counterparts(side, other)
    calls: list[PlannedCall] = []
    for index in sorted(asked, reverse=True):
        active = [p for p in placed_sides[index] if _is_active(p.entry, sigma, sampling)]
        own = [call for placed in active for call in _planned(x, placed, index)]
        plain = [call for call in own if not call.entry.is_default]
        calls += [*plain, *_in_gaps(x, plain, [call for call in own if call.entry.is_default])]
    return calls


def _in_gaps(
    x: torch.Tensor, plain: Sequence[PlannedCall], defaults: Sequence[PlannedCall]
) -> list[PlannedCall]:
    """The calls of defaults, each times what the plain calls' weights lack to 1.

    Those that find no gap are left out. Source: `default_cond` in the goldens.
    """
    if not defaults:
        return []
    gap = torch.ones((len(x), 1, *x.shape[2:]), device=x.device)
    for call in plain:
        weight = call.multiplier
        part = call.crop(gap)
        part -= weight.to(x.device) if isinstance(weight, torch.Tensor) else weight
    gap.clamp_(min=0.0)
    weighted: list[PlannedCall] = []
    for call in defaults:
        weight = call.multiplier
        share = call.crop(gap) * (
            weight.to(x.device) if isinstance(weight, torch.Tensor) else weight
        )
        if bool(share.any()):
            weighted.append(replace(call, multiplier=share))
    return weighted


def _placed(x: torch.Tensor, side: Conditioning) -> list[_Placed]:
    lengths = tuple(x.shape[2:])
    placed: list[_Placed] = []
    for entry in side.entries:
        mask = None if entry.mask is None else fitted(entry.mask, *lengths[-2:])
        placed.append(_Placed(entry, mask, area_of(entry, mask, lengths)))
    return placed


def _counterparts(side: Sequence[_Placed], others: Sequence[_Placed]) -> list[_Placed]:
    """What `others` lack: their text on each area of `side` that none of them has.

    The text is that of the smallest of their areas around it, or else of their first entry for the
    whole picture.
    """
    added: list[_Placed] = []
    for placed in side:
        if placed.area is None:
            continue
        source = _smallest_around(placed.area, [*others, *added])
        if source is None or source.area == placed.area:
            continue
        texted = msgspec.structs.replace(
            placed.entry,
            cond=source.entry.cond,
            pooled=source.entry.pooled,
            concat_latent=source.entry.concat_latent,
            concat_mask=source.entry.concat_mask,
            more=source.entry.more,
        )
        added.append(_Placed(texted, placed.mask, placed.area))
    return added


def _smallest_around(area: Area, others: Sequence[_Placed]) -> _Placed | None:
    around = [other for other in others if other.area is not None and other.area.contains(area)]
    if around:
        return min(around, key=lambda other: other.area.size if other.area else 0)
    return next((other for other in others if other.area is None), None)


def _is_active(entry: CondEntry, sigma: float, sampling: ModelSampling) -> bool:
    """Whether `sigma` is in the entry's part of the sampling, both ends included."""
    first = sampling.percent_to_sigma(entry.start_percent)
    last = sampling.percent_to_sigma(entry.end_percent)
    is_edge = any(math.isclose(sigma, edge, rel_tol=SIGMA_TOLERANCE) for edge in (first, last))
    return last <= sigma <= first or (is_edge and last <= first)


def _planned(x: torch.Tensor, placed: _Placed, side: int) -> list[PlannedCall]:
    """The entry's call; none if its area lies beside the picture."""
    entry, lengths = placed.entry, tuple(x.shape[2:])
    area = None if placed.area is None else placed.area.clipped(lengths)
    if area is not None and area.size == 0:
        return []
    multiplier: torch.Tensor | float = entry.strength
    if placed.mask is not None:
        mask = _over_all_frames(for_batch(placed.mask, len(x)), lengths)
        weights = mask if area is None else area.crop(mask)
        multiplier = weights.unsqueeze(1) * entry.mask_strength * entry.strength
    elif area is not None:
        multiplier = feathering(area, lengths) * entry.strength
    return [PlannedCall(entry, side, area=area, multiplier=multiplier)]


def _over_all_frames(mask: torch.Tensor, lengths: tuple[int, ...]) -> torch.Tensor:
    """Masks [N, h, w] as [N, *lengths]; a view."""
    frames = (1,) * (len(lengths) - 2)
    return mask.reshape(len(mask), *frames, *mask.shape[1:]).expand(len(mask), *lengths)
