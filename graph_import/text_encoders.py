"""The encoders that a family's text encoder is made of, by the names that files give them.

A family's denoisers were trained with all of them; SD3 does with any, SDXL's refiner with CLIP-G.
Source: SDXL (arXiv 2307.01952), section 2.1; SD3 (arXiv 2403.03206), section 4; the model cards of
Flux.1 and Z-Image.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CLIP_L: Final = "clip_l"
CLIP_G: Final = "clip_g"
T5XXL: Final = "t5xxl"
QWEN3_4B: Final = "qwen3_4b"

FAMILY_ENCODERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "sd15": (CLIP_L,),
        "sdxl": (CLIP_L, CLIP_G),
        "sd3": (CLIP_L, CLIP_G, T5XXL),
        "flux": (CLIP_L, T5XXL),
        "z_image": (QWEN3_4B,),
    }
)
