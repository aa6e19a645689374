"""Small pictures of a run under way, from the denoised latents: a linear map or a tiny decoder.

No random numbers are drawn and no latent is changed: the picture itself is the same without them.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

import torch
from PIL import Image

from ...graph_import.families import Family
from ..config import PreviewMethod
from .preview_decoders import PreviewDecoders

PREVIEW_METHODS: Final = frozenset(PreviewMethod) - {PreviewMethod.NONE}
JPEG_QUALITY: Final = 95
MAX_DECODED: Final = 128 * 128  # positions of latents; decoding holds some 64 KB for each


class Previews:
    """Makes the previews of one executor.

    Args:
        size: they fill a square of so many pixels in one direction.
        folders: where tiny decoders may lie.
        device: where those are loaded to.
    """

    def __init__(self, size: int, folders: tuple[Path, ...], device: str) -> None:
        self._size = size
        self._decoders = PreviewDecoders(folders, device)

    def jpeg(self, method: str, denoised: torch.Tensor, family: Family) -> bytes:
        """JPEG of the first image of `denoised` [B, C, h, w] (the denoiser's space).

        It is scaled up or down, keeping its sides' ratio. `taesd` means the family's tiny decoder;
        any other method means the linear map, and so does `taesd` where the decoder's file is
        missing or unusable or the latents are large.
        """
        first = denoised[:1]
        decoded = None
        if method == PreviewMethod.TAESD and first[0, 0].numel() <= MAX_DECODED:
            decoded = self._decoders.decode(first, family)
        colours = latent2rgb(first, family) if decoded is None else decoded
        picture = Image.fromarray((colours[0] * 255.0).to(torch.uint8).numpy())
        longer = max(picture.size)
        width, height = (max(1, round(side / longer * self._size)) for side in picture.size)
        out = io.BytesIO()
        fitted = picture.resize((width, height), Image.Resampling.BILINEAR)
        fitted.save(out, format="JPEG", quality=JPEG_QUALITY)
        return out.getvalue()

    def drop_decoders(self) -> None:
        """Unload the tiny decoders."""
        self._decoders.drop_all()


def latent2rgb(latents: torch.Tensor, family: Family) -> torch.Tensor:
    """Colours [B, h, w, 3], 0 to 1, of latents [B, C, h, w] by the family's linear map."""
    factors = torch.tensor(family.latent_rgb_factors, dtype=torch.float32)
    bias = torch.tensor(family.latent_rgb_bias, dtype=torch.float32)
    channels_last = latents.to("cpu", torch.float32).movedim(1, -1)
    return ((channels_last @ factors + bias + 1.0) / 2.0).nan_to_num(0.0).clamp(0.0, 1.0)
