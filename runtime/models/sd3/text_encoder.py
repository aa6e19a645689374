"""SD3's text encoder: CLIP-L and CLIP-G side by side, filled up to T5's width, then T5's rows.

Any of the three may be missing: zeros stand for a CLIP's part of the vectors, and T5's rows are
left out. Source: SD3 (arXiv 2403.03206), section 4 and figure 2; ComfyUI 0.8.0, `clip.json` of the
goldens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import torch

from ....graph_import.text_encoders import CLIP_G, CLIP_L, T5XXL
from ...errors import NodeFailed
from ...values import CondEntry
from ..clip_tokenizer import CHUNK_LENGTH
from ..text.clip import ClipUse
from ..text.family_encoder import Call, Chunks, FamilyTextEncoder, Ids, side_by_side
from ..text.part import Encoded
from ..text.pieces import Chunk
from ..text.tokenizer import Tokenizer

CONTEXT_WIDTH: Final = 4096
POOLED_WIDTHS: Final = {CLIP_L: 768, CLIP_G: 1280}  # of what stands for a missing CLIP


class TextEncoder(FamilyTextEncoder):
    """cond float32 [1, tokens, 4096], pooled [1, 2048]."""

    clip_uses: ClassVar = {
        CLIP_L: ClipUse(layer=-2, is_normed=False),
        CLIP_G: ClipUse(layer=-2, is_normed=False, is_projected=True),
    }

    def chunks(self, call: Call, given: Mapping[str, Tokenizer], ids: Ids) -> Chunks:
        """A text that is left out is no chunk of a CLIP's; T5 gets its end id alone."""
        chunks = dict(super().chunks(call, given, ids))
        if T5XXL in self.transformers and not chunks[T5XXL]:
            end = self.transformers[T5XXL].empty(1)
            chunks[T5XXL] = [Chunk(ids=end, weights=(1.0,), words=(0,))]
        return chunks

    def join(self, encoded: Mapping[str, Encoded]) -> CondEntry:
        """Raises: NodeFailed: an encoder is wider than SD3's."""
        rows = [
            one for one in (self._clip_rows(encoded), self._t5_rows(encoded)) if one is not None
        ]
        cond = torch.cat(rows, dim=1) if rows else torch.zeros(1, CHUNK_LENGTH, CONTEXT_WIDTH)
        pooled = [
            encoded[name][1] if name in encoded else torch.zeros(1, width)
            for name, width in POOLED_WIDTHS.items()
        ]
        return CondEntry(
            cond=cond, pooled=torch.cat([one for one in pooled if one is not None], dim=-1)
        )

    def _clip_rows(self, encoded: Mapping[str, Encoded]) -> torch.Tensor | None:
        both = side_by_side(encoded)
        if both is None:
            return None
        before = 0 if CLIP_L in encoded else POOLED_WIDTHS[CLIP_L]
        return self._filled(both, before)

    def _t5_rows(self, encoded: Mapping[str, Encoded]) -> torch.Tensor | None:
        return self._filled(encoded[T5XXL][0], 0) if T5XXL in encoded else None

    def _filled(self, rows: torch.Tensor, before: int) -> torch.Tensor:
        """The rows with zeros before and behind, as wide as SD3's context."""
        behind = CONTEXT_WIDTH - before - rows.shape[-1]
        if behind < 0:
            raise NodeFailed(
                f"{self.ref.key.label()} gives vectors {rows.shape[-1]} wide; "
                f"SD3 takes {CONTEXT_WIDTH}"
            )
        return torch.nn.functional.pad(rows, (before, behind))
