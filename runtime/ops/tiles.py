"""Large pictures in little memory: tile by tile, overlapping, blended where they overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch


@dataclass(slots=True, frozen=True)
class Tiling:
    """How a plane is cut; all sizes in cells, the unit that source and result have in common.

    Args:
        side: of a tile, at most.
        overlap: of neighbours, at least; over it one fades into the other.
        source_scale: source pixels along a cell's side.
    """

    side: int
    overlap: int
    source_scale: int = 1


def run_tiled(
    source: torch.Tensor,
    run: Callable[[torch.Tensor], torch.Tensor],
    tiling: Tiling,
    check_cancelled: Callable[[], None],
) -> torch.Tensor:
    """What `run` makes of `source` [1, C, H, W], whose sides are whole cells.

    A source of one tile gives exactly what `run` gives. How large the result of a cell is shows in
    the first tile's.
    """
    scale = tiling.source_scale
    rows, columns = source.shape[-2] // scale, source.shape[-1] // scale
    result = weights = None
    for top, height in tile_spans(rows, tiling):
        for left, width in tile_spans(columns, tiling):
            check_cancelled()
            tile = source[..., top * scale : (top + height) * scale, :]
            made = run(tile[..., left * scale : (left + width) * scale])
            if (height, width) == (rows, columns):
                return made
            grown = made.shape[-1] // width
            if result is None or weights is None:
                result = made.new_zeros(*made.shape[:2], rows * grown, columns * grown)
                weights = made.new_zeros(1, 1, *result.shape[-2:])
            fade = tiling.overlap * grown
            down = _fade(height * grown, fade, top > 0, top + height < rows)
            across = _fade(width * grown, fade, left > 0, left + width < columns)
            share = down[:, None] * across[None, :]
            place = (
                ...,
                slice(top * grown, (top + height) * grown),
                slice(left * grown, (left + width) * grown),
            )
            result[place] += made * share
            weights[place] += share
    assert result is not None
    assert weights is not None
    return result / weights


def tile_spans(length: int, tiling: Tiling) -> Iterator[tuple[int, int]]:
    """(start, length) of the tiles along a side of `length` cells, evenly spread."""
    side = min(tiling.side, length)
    if side == length:
        yield 0, length
        return
    count = math.ceil((length - tiling.overlap) / (side - tiling.overlap))
    for index in range(count):
        yield round(index * (length - side) / (count - 1)), side


def _fade(length: int, fade: int, is_before: bool, is_after: bool) -> torch.Tensor:
    """Share of each pixel along a tile's side: it grows from sides that others lie behind."""
    share = torch.ones(length)
    ramp = (torch.arange(fade, dtype=torch.float32) + 1.0) / (fade + 1)
    if is_before:
        share[:fade] *= ramp
    if is_after:
        share[length - fade :] *= ramp.flip(0)
    return share
