"""A ControlNet's look at its hint picture: the same in every step, so it is computed once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import torch

MAX_BYTES: Final = 64 * 1024 * 1024  # of hints and what became of them, kept for the next steps


class HintEmbedding:
    """Remembers what the convolutions on a hint gave, for the hints that were used last.

    Every hint is computed by itself, whatever shares its forward: so the bits are the same whether
    it was remembered or not.
    """

    def __init__(self, embed: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._embed = embed
        self._known: deque[tuple[torch.Tensor, torch.Tensor]] = deque()

    def of(self, hint: torch.Tensor) -> torch.Tensor:
        """The embedding [B, C, h, w] of a hint [B, 3, 8h, 8w]."""
        for index, (known, embedding) in enumerate(self._known):
            if known.shape == hint.shape and torch.equal(known, hint):
                self._known.rotate(-index)
                return embedding
        embedding = self._embed(hint)
        self._known.appendleft((hint, embedding))
        while self.num_bytes > MAX_BYTES:
            self._known.pop()
        return embedding

    @property
    def num_bytes(self) -> int:
        """Bytes of what is remembered."""
        return sum(t.numel() * t.element_size() for pair in self._known for t in pair)
