"""SD1.5's text encoder: CLIP-L.

A layer, by default the last, after the final norm; the pooled vector is the last layer's at the
first chunk's end token, unprojected. Source: design notes on models, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ....graph_import.text_encoders import CLIP_L
from ...values import CondEntry
from ..text.clip import ClipUse
from ..text.family_encoder import FamilyTextEncoder
from ..text.part import Encoded


class TextEncoder(FamilyTextEncoder):
    """cond float32 [1, n * 77, width], pooled [1, width]."""

    clip_uses: ClassVar = {CLIP_L: ClipUse()}

    def join(self, encoded: Mapping[str, Encoded]) -> CondEntry:
        cond, pooled = encoded[CLIP_L]
        return CondEntry(cond=cond, pooled=pooled)
