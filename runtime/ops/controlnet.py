"""Bodies of ControlNet nodes: marking what one steers, and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
import torch

from ..errors import NodeFailed
from ..sampling.calls import PlannedCall
from ..sampling.guidance import GuidedRow
from ..values import LATENT_PIXELS, CallResiduals, Conditioning, Latent, Residuals
from .arguments import argument, image_argument, loaded, number
from .base import OpCall, OpContext, OpResult
from .latent import one_by_one
from .resample import crop_to_aspect, resample
from .turns import turn_of

HINT_CHANNELS = 3

FittedHint = Callable[[torch.Tensor], torch.Tensor]  # a part of the latents -> the hint for it


def cond_control(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Every entry of `conditioning` is steered by one more ControlNet, known by its `marker`."""
    results: list[OpResult] = []
    for call in calls:
        marker = argument(call, "marker", str)
        entries = tuple(
            msgspec.structs.replace(entry, controls=(*entry.controls, marker))
            for entry in argument(call, "conditioning", Conditioning).entries
        )
        results.append(OpResult(outputs=(Conditioning(entries=entries),)))
    return results


def encode_hint(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The hint pictures fitted to `latent` and encoded, for a ControlNet that looks at latents."""
    model = loaded(ctx)
    results: list[OpResult] = []
    for call in calls:
        height, width = argument(call, "latent", Latent).samples.shape[-2:]
        hint = _hint_argument(call)
        pixels = _fitted(hint, len(hint), height, width).movedim(1, 3)
        encoded = one_by_one(ctx, model, "pixels", pixels, "latent")
        results.append(OpResult(outputs=(Latent(samples=encoded),)))
    return results


def controlnet(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """What the ControlNet adds to the calls of one evaluation whose entries have its `marker`.

    In strict mode every call is a batch of its own.
    """
    groups = [[call] for call in calls] if ctx.is_strict else [list(calls)]
    results: list[OpResult] = []
    for group in groups:
        ctx.check_cancelled()
        results += [OpResult(outputs=(residuals,)) for residuals in _evaluate(ctx, group)]
    return results


def _evaluate(ctx: OpContext, calls: Sequence[OpCall]) -> list[Residuals]:
    """One `execute_batch` for all calls."""
    strengths = [number(call, "strength") for call in calls]
    requests = [
        _requests(call) if strength else {} for call, strength in zip(calls, strengths, strict=True)
    ]
    given = iter(
        loaded(ctx).execute_batch([request for own in requests for request in own.values()])
    )
    results: list[Residuals] = []
    for own, strength in zip(requests, strengths, strict=True):
        by_position = {position: _scaled(next(given), strength) for position in own}
        length = max(own, default=-1) + 1
        results.append(Residuals(calls=tuple(by_position.get(i) for i in range(length))))
    return results


def _requests(call: OpCall) -> dict[int, Mapping[str, object]]:
    """What the model is asked, by position in the evaluation's plan."""
    row, marker = turn_of(call).row, argument(call, "marker", str)
    fitted = _latent_hint(call, row) if "hint_latent" in call.args else _picture_hint(call)
    return {
        position: _request(planned, row, fitted)
        for position, planned in enumerate(row.plan())
        if marker in planned.entry.controls
    }


def _request(planned: PlannedCall, row: GuidedRow, fitted: FittedHint) -> Mapping[str, object]:
    part = planned.crop(row.x)
    return {
        "x": part,
        "sigma": row.sigma,
        "model_sampling": row.sampling,
        "context": planned.entry.cond,
        "hint": fitted(part),
    }


def _picture_hint(call: OpCall) -> FittedHint:
    hint = _hint_argument(call)
    return lambda part: _fitted(hint, len(part), *part.shape[-2:])


def _latent_hint(call: OpCall, row: GuidedRow) -> FittedHint:
    """The encoded hint in the denoiser's scale, without its shift."""
    hint = argument(call, "hint_latent", Latent).samples * row.family.scale_factor

    def fitted(part: torch.Tensor) -> torch.Tensor:
        if part.shape[-2:] != hint.shape[-2:]:
            reason = "a ControlNet whose hint is a latent can't steer an area of the picture"
            raise NodeFailed(reason, node_id=call.node_id)
        return _for_items(hint, len(part))

    return fitted


def _hint_argument(call: OpCall) -> torch.Tensor:
    """The hint pictures as [B, 3, H, W], 0 to 1."""
    hint = image_argument(call, "hint")
    if hint.shape[3] != HINT_CHANNELS:
        raise NodeFailed(
            f"the hint of a ControlNet must have {HINT_CHANNELS} channels, not {hint.shape[3]}",
            node_id=call.node_id,
        )
    return hint.movedim(3, 1)


def _fitted(hint: torch.Tensor, num_items: int, height: int, width: int) -> torch.Tensor:
    """Hint pictures for latents of this size: cropped to their aspect, one for each item."""
    cropped = crop_to_aspect(hint, width / height)
    sized = resample(cropped, "nearest-exact", width * LATENT_PIXELS, height * LATENT_PIXELS)
    return _for_items(sized, num_items)


def _for_items(hint: torch.Tensor, num_items: int) -> torch.Tensor:
    return hint.repeat(math.ceil(num_items / len(hint)), 1, 1, 1)[:num_items]


def _scaled(result: Mapping[str, object], strength: float) -> CallResiduals:
    residuals = result["residuals"]
    if not isinstance(residuals, CallResiduals):
        raise TypeError(f"a ControlNet gave {type(residuals).__name__} for 'residuals'")
    return CallResiduals(blocks=tuple(tensor * strength for tensor in residuals.blocks))
