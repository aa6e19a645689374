"""Conditionings combined and changed, entry by entry. What is given is left as it is.

Source: ComfyUI 0.8.0, `nodes` in `conds.json` of the goldens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import torch

from ..errors import NodeFailed
from ..values import LATENT_PIXELS, CondEntry, Conditioning
from .arguments import argument, mask_argument, number
from .base import OpCall, OpContext, OpResult

MAX_ENTRIES: Final = 1024  # combining with itself doubles them
MAX_TOKENS: Final = 77 * 256  # and concatenating with itself these
MAX_CONDITIONING_BYTES: Final = 2**30


def conditioning_combine(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The entries of both conditionings, side by side."""
    results: list[OpResult] = []
    for call in calls:
        first = argument(call, "conditioning_1", Conditioning)
        second = argument(call, "conditioning_2", Conditioning)
        both = limited(call, (*first.entries, *second.entries))
        results.append(OpResult(outputs=(both,)))
    return results


def conditioning_average(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Each entry of `conditioning_to`, mixed with the first one of `conditioning_from`.

    The other's text is cut, or filled with zeros, to the entry's number of tokens.
    """
    return [changed(call, "conditioning_to", _averaged(call)) for call in calls]


def _averaged(call: OpCall) -> Callable[[CondEntry], CondEntry]:
    other, share = _first(call, "conditioning_from"), number(call, "conditioning_to_strength")

    def average(entry: CondEntry) -> CondEntry:
        _check_widths(call, entry, other)
        num_tokens = entry.cond.shape[1]
        cut = other.cond[:, :num_tokens]
        filled = torch.nn.functional.pad(cut, (0, 0, 0, num_tokens - cut.shape[1]))
        pooled = entry.pooled
        if other.pooled is not None:
            own = other.pooled if pooled is None else pooled
            pooled = own * share + other.pooled * (1.0 - share)
        return msgspec.structs.replace(
            entry, cond=entry.cond * share + filled * (1.0 - share), pooled=pooled
        )

    return average


def conditioning_concat(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Each entry of `conditioning_to`, with the tokens of `conditioning_from`'s first behind it."""
    return [changed(call, "conditioning_to", _concatenated(call)) for call in calls]


def _concatenated(call: OpCall) -> Callable[[CondEntry], CondEntry]:
    other = _first(call, "conditioning_from")

    def concat(entry: CondEntry) -> CondEntry:
        _check_widths(call, entry, other)
        num_tokens = entry.cond.shape[1] + other.cond.shape[1]
        if num_tokens > MAX_TOKENS:
            raise NodeFailed(
                f"a text of {num_tokens} tokens is too large: {MAX_TOKENS} are possible",
                node_id=call.node_id,
            )
        return msgspec.structs.replace(entry, cond=torch.cat((entry.cond, other.cond), dim=1))

    return concat


def conditioning_set_area(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The entries count in a rectangle alone, given in pixels."""
    return [changed(call, "conditioning", _in_area(call)) for call in calls]


def _in_area(call: OpCall) -> Callable[[CondEntry], CondEntry]:
    height, width, y, x = (
        argument(call, name, int) // LATENT_PIXELS for name in ("height", "width", "y", "x")
    )
    return _with_area(call, ("latent", height, width, y, x))


def conditioning_set_area_percentage(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The entries count in a rectangle alone, given in shares (0 to 1) of the picture."""
    return [changed(call, "conditioning", _in_share(call)) for call in calls]


def _in_share(call: OpCall) -> Callable[[CondEntry], CondEntry]:
    height, width, y, x = (number(call, name) for name in ("height", "width", "y", "x"))
    return _with_area(call, ("percentage", height, width, y, x))


def _with_area(
    call: OpCall, area: tuple[str, float, float, float, float]
) -> Callable[[CondEntry], CondEntry]:
    strength = number(call, "strength")
    return lambda entry: msgspec.structs.replace(
        entry, area=area, strength=strength, is_mask_bounds=False
    )


def conditioning_set_mask(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The entries count as a mask says; `mask bounds` shows them nothing outside its bounds."""
    return [changed(call, "conditioning", _under_mask(call)) for call in calls]


def _under_mask(call: OpCall) -> Callable[[CondEntry], CondEntry]:
    mask, strength = mask_argument(call, "mask"), number(call, "strength")
    is_bounds = argument(call, "set_cond_area", str) == "mask bounds"
    return lambda entry: msgspec.structs.replace(
        entry, mask=mask, mask_strength=strength, is_mask_bounds=is_bounds
    )


def conditioning_set_timestep_range(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The entries count in a part of the sampling, given in shares (0 to 1) of its timesteps."""
    return [changed(call, "conditioning", _in_range(call)) for call in calls]


def _in_range(call: OpCall) -> Callable[[CondEntry], CondEntry]:
    start, end = number(call, "start"), number(call, "end")
    return lambda entry: msgspec.structs.replace(entry, start_percent=start, end_percent=end)


def conditioning_zero_out(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The entries with zeros for text."""
    return [changed(call, "conditioning", _zeroed) for call in calls]


def _zeroed(entry: CondEntry) -> CondEntry:
    pooled = None if entry.pooled is None else torch.zeros_like(entry.pooled)
    return msgspec.structs.replace(entry, cond=torch.zeros_like(entry.cond), pooled=pooled)


def changed(call: OpCall, name: str, change: Callable[[CondEntry], CondEntry]) -> OpResult:
    """The conditioning `name` with every entry changed."""
    entries = argument(call, name, Conditioning).entries
    return OpResult(outputs=(limited(call, tuple(change(entry) for entry in entries)),))


def _check_widths(call: OpCall, entry: CondEntry, other: CondEntry) -> None:
    texts = [(given.cond, given.pooled) for given in (entry, other)]
    widths = [tuple(tensor.shape[-1] for tensor in text if tensor is not None) for text in texts]
    if any(own != another for own, another in zip(*widths, strict=False)):
        raise NodeFailed(
            f"texts of widths {widths} don't mix: they come from different text encoders",
            node_id=call.node_id,
        )


def limited(call: OpCall, entries: tuple[CondEntry, ...]) -> Conditioning:
    """A conditioning of these entries. Raises: NodeFailed: it is larger than one may be."""
    num_bytes = sum(
        tensor.nbytes
        for entry in entries
        for tensor in (
            *(entry.cond, entry.pooled, entry.mask, entry.concat_latent, entry.concat_mask),
            *entry.more.tensors,
        )
        if tensor is not None
    )
    if len(entries) > MAX_ENTRIES or num_bytes > MAX_CONDITIONING_BYTES:
        raise NodeFailed(
            f"a conditioning of {len(entries)} entries and {num_bytes} bytes is too large: "
            f"{MAX_ENTRIES} and {MAX_CONDITIONING_BYTES} are possible",
            node_id=call.node_id,
        )
    return Conditioning(entries=entries)


def _first(call: OpCall, name: str) -> CondEntry:
    entries = argument(call, name, Conditioning).entries
    if not entries:
        raise NodeFailed(f"{name} has no text", node_id=call.node_id)
    return entries[0]
