"""Where on a picture an entry counts: its area in latent units, and how much it counts there.

The latents of a video have frames before their height; all of them are in an area that names none.
Source: ComfyUI 0.8.0, `conds.json` of the goldens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch

from ..values import CondEntry

MAX_FADE: Final = 8  # latent positions over which an area fades in at a border
MIN_BOUNDS: Final = 8  # a mask's bounds are no smaller than this


@dataclass(slots=True, frozen=True)
class Area:
    """A block in latent units. It may reach beyond the edges of the picture.

    Args:
        sizes: height and width; before them the number of frames, where the latents have any.
        starts: where it begins along each of these.
    """

    sizes: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many latent positions it has."""
        return math.prod(self.sizes)

    def contains(self, other: Area) -> bool:
        """Whether `other`, of as many dimensions, lies within this area.

        Plain loops, to the first side that sticks out: an evaluation of a thousand areas a side
        asks a million times.
        """
        for start, size, its, its_size in zip(
            self.starts, self.sizes, other.starts, other.sizes, strict=True
        ):
            if start > its or start + size < its + its_size:
                return False
        return True

    def clipped(self, lengths: tuple[int, ...]) -> Area:
        """The part on latents of these lengths; without positions if there is none."""
        spans = zip(self.starts, self._ends, lengths, strict=True)
        found = [
            (min(max(start, 0), length), min(max(end, 0), length)) for start, end, length in spans
        ]
        return Area(tuple(end - start for start, end in found), tuple(start for start, _ in found))

    def crop(self, tensor: torch.Tensor) -> torch.Tensor:
        """This part of the last dimensions of `tensor`, as a view."""
        first = tensor.dim() - len(self.sizes)
        for axis, (start, size) in enumerate(zip(self.starts, self.sizes, strict=True), first):
            tensor = tensor.narrow(axis, start, size)
        return tensor

    @property
    def _ends(self) -> tuple[int, ...]:
        return tuple(start + size for start, size in zip(self.starts, self.sizes, strict=True))


def area_of(entry: CondEntry, mask: torch.Tensor | None, lengths: tuple[int, ...]) -> Area | None:
    """The entry's area on latents of `lengths` ([frames,] height, width); None: all of them.

    The frames of an area don't count on latents that have none.
    """
    if entry.is_mask_bounds and mask is not None:
        return _over_all_frames(_bounds(mask), lengths)
    if entry.area is None:
        return None
    unit, *numbers = entry.area
    half = len(numbers) // 2
    sizes, starts = numbers[:half][-len(lengths) :], numbers[half:][-len(lengths) :]
    if unit == "percentage":
        given = lengths[-len(sizes) :]
        return _over_all_frames(
            Area(
                tuple(max(1, round(s * n)) for s, n in zip(sizes, given, strict=True)),
                tuple(round(s * n) for s, n in zip(starts, given, strict=True)),
            ),
            lengths,
        )
    return _over_all_frames(Area(tuple(map(int, sizes)), tuple(map(int, starts))), lengths)


def _over_all_frames(area: Area, lengths: tuple[int, ...]) -> Area:
    frames = lengths[: len(lengths) - len(area.sizes)]
    return Area((*frames, *area.sizes), (*(0 for _ in frames), *area.starts))


def _bounds(mask: torch.Tensor) -> Area:
    """Where any of the masks [B, h, w] isn't zero."""
    is_set = (mask != 0).any(dim=0)
    rows, columns = is_set.any(dim=1).nonzero(), is_set.any(dim=0).nonzero()
    if len(rows) == 0:
        return Area((MIN_BOUNDS, MIN_BOUNDS), (0, 0))
    top, bottom = int(rows[0]), int(rows[-1])
    left, right = int(columns[0]), int(columns[-1])
    sizes = max(MIN_BOUNDS, bottom - top + 1), max(MIN_BOUNDS, right - left + 1)
    return Area(sizes, (top, left))


def feathering(area: Area, lengths: tuple[int, ...]) -> torch.Tensor:
    """The weights of a clipped area, [1, 1, *area.sizes], float32.

    They rise over `min(MAX_FADE, size // 4)` positions from each border inside the latents.
    """
    weights = torch.ones((1, 1), dtype=torch.float32)
    for size, start, length in zip(area.sizes, area.starts, lengths, strict=True):
        ramp = _ramp(size, is_first_open=start > 0, is_last_open=start + size < length)
        weights = weights[..., None] * ramp
    return weights


def _ramp(size: int, *, is_first_open: bool, is_last_open: bool) -> torch.Tensor:
    weights = torch.ones(size, dtype=torch.float32)
    fade = min(MAX_FADE, size // 4)
    rise = torch.arange(1, fade + 1, dtype=torch.float32) / max(fade, 1)
    if is_first_open:
        weights[:fade] *= rise
    if is_last_open:
        weights[size - fade :] *= rise.flip(0)
    return weights
