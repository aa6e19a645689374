"""Where, when and how strongly entries count, set all at once; what is given is left as it is.

Source: ComfyUI 0.8.0, `conds.json` and `nodes.json` of the goldens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ..errors import NodeFailed
from ..values import CondEntry
from .arguments import argument, mask_argument, number, numbered
from .base import OpCall, OpContext, OpResult
from .conditioning import changed


def conditioning_set_area_strength(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The entries count `strength` times; where they count stays."""
    return [changed(call, "conditioning", _stronger(call)) for call in calls]


def _stronger(call: OpCall) -> Callable[[CondEntry], CondEntry]:
    strength = number(call, "strength")
    return lambda entry: msgspec.structs.replace(entry, strength=strength)


def conditioning_set_area_percentage_video(
    ctx: OpContext, calls: Sequence[OpCall]
) -> list[OpResult]:
    """The entries count in a block alone, given in shares (0 to 1) of frames, height and width."""
    return [changed(call, "conditioning", _in_block(call)) for call in calls]


def _in_block(call: OpCall) -> Callable[[CondEntry], CondEntry]:
    names = ("temporal", "height", "width", "z", "y", "x")
    area = ("percentage", *(number(call, name) for name in names))
    strength = number(call, "strength")
    return lambda entry: msgspec.structs.replace(
        entry, area=area, strength=strength, is_mask_bounds=False
    )


def conditioning_set_properties(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The entries count as a mask says, in a part of the sampling; each where it is given.

    `strength` is the mask's: without one it changes nothing.
    """
    return [changed(call, "conditioning", _with_properties(call)) for call in calls]


def _with_properties(call: OpCall) -> Callable[[CondEntry], CondEntry]:
    mask = mask_argument(call, "mask") if "mask" in call.args else None
    strength = number(call, "strength")
    is_bounds = argument(call, "set_cond_area", str) == "mask bounds"
    timesteps = _range(call) if "timesteps" in call.args else None

    def change(entry: CondEntry) -> CondEntry:
        if mask is not None:
            entry = msgspec.structs.replace(
                entry, mask=mask, mask_strength=strength, is_mask_bounds=is_bounds
            )
        if timesteps is not None:
            start, end = timesteps
            entry = msgspec.structs.replace(entry, start_percent=start, end_percent=end)
        return entry

    return change


def conditioning_set_default(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The entries count where others leave a gap."""
    return [changed(call, "conditioning", _by_default) for call in calls]


def _by_default(entry: CondEntry) -> CondEntry:
    return msgspec.structs.replace(entry, is_default=True)


def cond_hooks(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Every entry has these hooks, too, each once."""
    return [changed(call, "conditioning", _under_hooks(call)) for call in calls]


def _under_hooks(call: OpCall) -> Callable[[CondEntry], CondEntry]:
    markers = numbered(call, "hook", str)
    return lambda entry: msgspec.structs.replace(
        entry, hooks=tuple(dict.fromkeys((*entry.hooks, *markers)))
    )


def timesteps_ranges(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """A part of the sampling, what is before it and what is behind it, each a pair of shares."""
    results: list[OpResult] = []
    for call in calls:
        start, end = number(call, "start_percent"), number(call, "end_percent")
        results.append(OpResult(outputs=((start, end), (0.0, start), (end, 1.0))))
    return results


def _range(call: OpCall) -> tuple[float, float]:
    match call.args["timesteps"]:
        case (float() as start, float() as end):
            return start, end
        case _:
            raise NodeFailed("input timesteps must be two numbers", input="timesteps")
