"""What the transformers behind text encoders have in common."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from ..embedding_files import Inversions
from ..patch_target import PatchTarget

Hidden = tuple[torch.Tensor, torch.Tensor | None]  # [n, length, width] and pooled [n, width]


class Transformer(Protocol):
    """A loaded transformer: token ids to a vector for each."""

    @property
    def module(self) -> Any:
        """Its weights; transformers' classes have no types."""

    @property
    def width(self) -> int:
        """Width of its vectors."""

    @property
    def vocabulary(self) -> int:
        """How many ids it knows; ids from there on are vectors of textual inversions."""

    def empty(self, length: int) -> tuple[int, ...]:
        """The ids of the empty text, padded to `length`."""

    def forward(self, ids: torch.Tensor, inversions: Inversions, layer: int | None) -> Hidden:
        """The vectors for ids [n, length], float32 on the CPU.

        Args:
            inversions: what ids beyond the vocabulary stand for.
            layer: which layer's vectors are wanted, -1 the last; None: the one that the family's
                denoisers were trained with.
        """

    def patch_target(self) -> PatchTarget:
        """What patches change."""


def embedded(table: Any, ids: torch.Tensor, inversions: Inversions) -> torch.Tensor:
    """The table's vectors for ids [n, length], or the inversions' for ids beyond it; float32."""
    words = ids.clamp(max=table.num_embeddings - 1).to(table.weight.device)
    return inversions.put(ids, _rows(table, words))


def _rows(table: Any, words: torch.Tensor) -> torch.Tensor:
    """Rows of a table of any dtype: 8 bits can't be looked up as they are."""
    weight: torch.Tensor = table.weight
    if weight.element_size() > 1:
        rows: torch.Tensor = table(words)
        return rows.to(torch.float32)
    return weight.view(torch.uint8)[words].view(weight.dtype).to(torch.float32)
