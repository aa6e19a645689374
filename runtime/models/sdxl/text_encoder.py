"""SDXL's text encoder: CLIP-L and CLIP-G side by side; the refiner's, CLIP-G alone.

Of both the last layer but one, without the final norm; the pooled vector is CLIP-G's, projected.
Source: SDXL (arXiv 2307.01952), section 2.1; ComfyUI 0.8.0, `clip.json` of the goldens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ....graph_import.text_encoders import CLIP_G, CLIP_L
from ...errors import NodeFailed
from ...values import CondEntry
from ..text.clip import ClipUse
from ..text.family_encoder import FamilyTextEncoder, side_by_side
from ..text.part import Encoded


class TextEncoder(FamilyTextEncoder):
    """cond float32 [1, n * 77, width of both], pooled [1, width of CLIP-G]."""

    clip_uses: ClassVar = {
        CLIP_L: ClipUse(layer=-2, is_normed=False),
        CLIP_G: ClipUse(layer=-2, is_normed=False, is_projected=True),
    }

    def join(self, encoded: Mapping[str, Encoded]) -> CondEntry:
        """Raises: NodeFailed: there is no CLIP-G."""
        cond = side_by_side(encoded)
        if cond is None or CLIP_G not in encoded:
            raise NodeFailed(f"{self.ref.key.label()} has no {CLIP_G}, which SDXL's texts need")
        return CondEntry(cond=cond, pooled=encoded[CLIP_G][1])
