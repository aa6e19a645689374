"""Flux.1's text encoder: T5's vectors, and the pooled one of CLIP-L, unprojected.

Source: design notes on models, section 5; ComfyUI 0.8.0, `clip.json` of the goldens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ....graph_import.text_encoders import CLIP_L, T5XXL
from ...errors import NodeFailed
from ...values import CondEntry
from ..lora_file import Part
from ..text.clip import ClipUse
from ..text.family_encoder import FamilyTextEncoder
from ..text.part import Encoded


class TextEncoder(FamilyTextEncoder):
    """cond float32 [1, tokens, width of T5], pooled [1, width of CLIP-L]."""

    clip_uses: ClassVar = {CLIP_L: ClipUse()}
    lora_names: ClassVar = {Part.CLIP_G: Part.T5XXL}  # the second encoder's

    def join(self, encoded: Mapping[str, Encoded]) -> CondEntry:
        """Raises: NodeFailed: one of both encoders is missing."""
        missing = [name for name in (CLIP_L, T5XXL) if name not in encoded]
        if missing:
            label = self.ref.key.label()
            raise NodeFailed(f"{label} has no {' and no '.join(missing)}, which Flux's texts need")
        return CondEntry(cond=encoded[T5XXL][0], pooled=encoded[CLIP_L][1])
