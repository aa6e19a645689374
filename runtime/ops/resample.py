"""Resampling of pictures and latents, both as tensors [B, C, H, W]."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from PIL import Image

from ..errors import NodeFailed

TORCH_METHODS: Final = frozenset({"nearest-exact", "bilinear", "area", "bicubic"})
# Where two vectors point the same way, or opposite ways, to this precision, there is no arc.
PARALLEL: Final = 1e-5


def resample(x: torch.Tensor, method: str, width: int, height: int) -> torch.Tensor:
    """Resize the two last sides of `x`. Raises: NodeFailed: an unknown method.

    Lanczos (for pictures of 1, 3 or 4 channels) goes through 8 bits, so its results are multiples
    of 1/255; bicubic may leave 0 to 1; bislerp turns the vectors of channels instead of mixing
    them. Source: ComfyUI 0.8.0, `nodes.json` of the goldens.
    """
    if method == "lanczos":
        return _lanczos(x, width, height)
    if method == "bislerp":
        return bislerp(x, width, height)
    if method not in TORCH_METHODS:
        raise NodeFailed(f"unknown upscale_method {method!r}", input="upscale_method")
    return torch.nn.functional.interpolate(x, size=(height, width), mode=method)


def bislerp(x: torch.Tensor, width: int, height: int) -> torch.Tensor:
    """Bilinear places and shares, spherical interpolation of the channels: first along rows.

    The length of a vector is mixed in proportion, its direction goes along the arc.
    """
    along_rows = _slerp_last_side(x.to(torch.float32), width)
    along_columns = _slerp_last_side(along_rows.transpose(2, 3), height)
    return along_columns.transpose(2, 3).to(x.dtype).contiguous()


def crop_to_aspect(x: torch.Tensor, aspect: float) -> torch.Tensor:
    """Cut equal borders off two sides, so that width / height comes near `aspect`."""
    height, width = x.shape[-2:]
    if width / height > aspect:
        border = round((width - height * aspect) / 2)
        return x.narrow(-1, border, max(1, width - 2 * border))
    border = round((height - width / aspect) / 2)
    return x.narrow(-2, border, max(1, height - 2 * border))


def _slerp_last_side(x: torch.Tensor, length: int) -> torch.Tensor:
    """Stretch the last side of `x` [B, C, ., n] to `length`.

    The places are the indices themselves, stretched bilinearly: their rounding counts where two
    vectors are nearly opposite.
    """
    size = x.shape[-1]
    indices = torch.arange(size, dtype=torch.float32).reshape(1, 1, 1, size)
    places = torch.nn.functional.interpolate(indices, size=(1, length), mode="bilinear").flatten()
    before = places.floor().long()
    after = (before + 1).clamp(max=size - 1)
    return _slerp(x[..., before], x[..., after], places - before)


def _slerp(start: torch.Tensor, end: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """The vectors over dimension 1 that lie `share` of the way from `start` to `end`.

    Source: Shoemake 1985, "Animating rotation with quaternion curves", section 3.3; the order of
    the divisions is that of the numbers recorded from ComfyUI 0.8.0.
    """
    start_length = start.norm(dim=1, keepdim=True)
    end_length = end.norm(dim=1, keepdim=True)
    from_here = torch.where(start_length > 0, start / start_length, 0.0)
    to_there = torch.where(end_length > 0, end / end_length, 0.0)
    cosine = (from_here * to_there).sum(dim=1, keepdim=True)
    angle = cosine.clamp(-1.0, 1.0).acos()
    sine = angle.sin()
    here, there = ((1.0 - share) * angle).sin() / sine, (share * angle).sin() / sine
    length = start_length * (1.0 - share) + end_length * share
    arc = (here * from_here + there * to_there) * length
    straight = start * (1.0 - share) + end * share
    result = torch.where(cosine > 1.0 - PARALLEL, start, arc)
    return torch.where(cosine < PARALLEL - 1.0, straight, result)


def _lanczos(x: torch.Tensor, width: int, height: int) -> torch.Tensor:
    pictures = []
    for pixels in x.movedim(1, -1):
        eight_bit = (pixels.clamp(0.0, 1.0) * 255.0).to(torch.uint8).squeeze(-1).numpy()
        resized = Image.fromarray(eight_bit).resize((width, height), Image.Resampling.LANCZOS)
        pictures.append(torch.from_numpy(np.array(resized, dtype=np.float32) / np.float32(255.0)))
    stacked = torch.stack(pictures).reshape(len(x), height, width, x.shape[1])
    return stacked.movedim(-1, 1)
