"""Where on a picture an entry counts: its area in latent units, and how much it counts there.

Source: ComfyUI 0.8.0, `conds.json` of the goldens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from ..values import CondEntry

MAX_FADE: Final = 8  # latent positions over which an area fades in at a border
MIN_BOUNDS: Final = 8  # a mask's bounds are no smaller than this


@dataclass(slots=True, frozen=True)
class Area:
    """A rectangle in latent units. It may reach beyond the picture's right and bottom edges."""

    height: int
    width: int
    y: int
    x: int

    @property
    def size(self) -> int:
        """How many latent positions it has."""
        return self.height * self.width

    def contains(self, other: Area) -> bool:
        """Whether `other` lies within this area."""
        return (
            self.y <= other.y
            and self.x <= other.x
            and self.y + self.height >= other.y + other.height
            and self.x + self.width >= other.x + other.width
        )

    def clipped(self, height: int, width: int) -> Area:
        """The part on a picture of `height` x `width`; without positions if there is none."""
        y, x = min(self.y, height), min(self.x, width)
        return Area(min(self.height, height - y), min(self.width, width - x), y, x)

    def crop(self, tensor: torch.Tensor) -> torch.Tensor:
        """This part of `tensor` [..., h, w], as a view."""
        return tensor[..., self.y : self.y + self.height, self.x : self.x + self.width]


def area_of(entry: CondEntry, mask: torch.Tensor | None, height: int, width: int) -> Area | None:
    """The entry's area on latents of `height` x `width`; None: all of the picture."""
    if entry.is_mask_bounds and mask is not None:
        return _bounds(mask)
    if entry.area is None:
        return None
    unit, *numbers = entry.area
    if unit == "percentage":
        rows, columns, y, x = numbers
        return Area(
            height=max(1, round(rows * height)),
            width=max(1, round(columns * width)),
            y=round(y * height),
            x=round(x * width),
        )
    return Area(*(int(number) for number in numbers))


def _bounds(mask: torch.Tensor) -> Area:
    """Where any of the masks [B, h, w] isn't zero."""
    is_set = (mask != 0).any(dim=0)
    rows, columns = is_set.any(dim=1).nonzero(), is_set.any(dim=0).nonzero()
    if len(rows) == 0:
        return Area(MIN_BOUNDS, MIN_BOUNDS, 0, 0)
    top, bottom = int(rows[0]), int(rows[-1])
    left, right = int(columns[0]), int(columns[-1])
    return Area(max(MIN_BOUNDS, bottom - top + 1), max(MIN_BOUNDS, right - left + 1), y=top, x=left)


def feathering(area: Area, height: int, width: int) -> torch.Tensor:
    """The weights of a clipped area, [1, 1, area height, area width], float32.

    They rise over `min(MAX_FADE, size // 4)` positions from each border inside the picture.
    """
    rows = _ramp(area.height, is_first_open=area.y > 0, is_last_open=area.y + area.height < height)
    columns = _ramp(area.width, is_first_open=area.x > 0, is_last_open=area.x + area.width < width)
    return (rows[:, None] * columns[None, :])[None, None]


def _ramp(size: int, *, is_first_open: bool, is_last_open: bool) -> torch.Tensor:
    weights = torch.ones(size, dtype=torch.float32)
    fade = min(MAX_FADE, size // 4)
    rise = torch.arange(1, fade + 1, dtype=torch.float32) / max(fade, 1)
    if is_first_open:
        weights[:fade] *= rise
    if is_last_open:
        weights[size - fade :] *= rise.flip(0)
    return weights
