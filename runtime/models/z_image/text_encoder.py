"""Z-Image's text encoder: Qwen3, the last layer but one; nothing is pooled.

Source: design notes on models, section 5; ComfyUI 0.8.0, `clip.json` of the goldens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ....graph_import.text_encoders import QWEN3_4B
from ...values import CondEntry
from ..text.family_encoder import FamilyTextEncoder
from ..text.part import Encoded


class TextEncoder(FamilyTextEncoder):
    """cond float32 [1, tokens, width of Qwen3], no pooled vector."""

    clip_uses: ClassVar = {}

    def join(self, encoded: Mapping[str, Encoded]) -> CondEntry:
        cond, pooled = encoded[QWEN3_4B]
        return CondEntry(cond=cond, pooled=pooled)
