"""The bodies of nodes that change the colours of pictures ([B, H, W, C]) and need no model.

Source of rules, constants and corner cases: ComfyUI 0.8.0's recorded outputs (`nodes.json` of the
goldens), to which they were fitted.
"""

from __future__ import annotations

from typing import Final

import kornia
import torch

from ..errors import NodeFailed
from ..values import Value
from .arguments import argument, image_argument, number
from .base import OpCall
from .each_call import each_call
from .resample import crop_to_aspect, resample

SHARPEN_STRENGTH: Final = 10.0  # times alpha: of four recorded pictures it is 10 to six digits


@each_call
def adjust_brightness(call: OpCall) -> tuple[Value, ...]:
    """images, factor -> IMAGE, times `factor`."""
    return ((image_argument(call, "images") * number(call, "factor")).clamp(0.0, 1.0),)


@each_call
def adjust_contrast(call: OpCall) -> tuple[Value, ...]:
    """images, factor -> IMAGE; the distances from grey are multiplied."""
    images = image_argument(call, "images")
    return (((images - 0.5) * number(call, "factor") + 0.5).clamp(0.0, 1.0),)


@each_call
def normalize_images(call: OpCall) -> tuple[Value, ...]:
    """images, mean, std -> IMAGE, (images - mean) / std."""
    return ((image_argument(call, "images") - number(call, "mean")) / number(call, "std"),)


@each_call
def image_add_noise(call: OpCall) -> tuple[Value, ...]:
    """image, seed, strength -> IMAGE with normal noise added."""
    image = image_argument(call, "image")
    generator = torch.Generator().manual_seed(argument(call, "seed", int))
    noise = torch.randn(image.shape, generator=generator)
    return ((image + number(call, "strength") * noise).clamp(0.0, 1.0),)


@each_call
def canny(call: OpCall) -> tuple[Value, ...]:
    """image, low_threshold, high_threshold -> IMAGE of the edges."""
    image = image_argument(call, "image")[..., :3].movedim(-1, 1)
    low, high = number(call, "low_threshold"), number(call, "high_threshold")
    if low >= high:
        raise NodeFailed("low_threshold must be smaller than high_threshold", input="low_threshold")
    edges = kornia.filters.canny(image, low, high)[1]
    return (edges.expand(-1, 3, -1, -1).movedim(1, -1).contiguous(),)


@each_call
def image_rgb_to_yuv(call: OpCall) -> tuple[Value, ...]:
    """image -> Y, U, V as three grey IMAGEs."""
    image = image_argument(call, "image")[..., :3].movedim(-1, 1)
    parts = kornia.color.rgb_to_ycbcr(image).movedim(1, -1)
    return tuple(part[..., None].expand(-1, -1, -1, 3).contiguous() for part in parts.unbind(-1))


@each_call
def image_yuv_to_rgb(call: OpCall) -> tuple[Value, ...]:
    """Y, U, V -> IMAGE, of the mean over the channels of each."""
    parts = [image_argument(call, name).mean(dim=-1, keepdim=True) for name in "YUV"]
    if len({part.shape for part in parts}) != 1:
        raise NodeFailed("Y, U and V differ in size")
    joined = torch.cat(parts, dim=-1).movedim(-1, 1)
    return (kornia.color.ycbcr_to_rgb(joined).movedim(1, -1).contiguous(),)


@each_call
def image_blend(call: OpCall) -> tuple[Value, ...]:
    """image1, image2, blend_factor, blend_mode -> IMAGE; the second takes the size of the first."""
    below, above = image_argument(call, "image1"), image_argument(call, "image2")
    if above.shape[1:3] != below.shape[1:3]:
        height, width = below.shape[1:3]
        cropped = crop_to_aspect(above.movedim(-1, 1), width / height)
        above = resample(cropped, "bicubic", width, height).movedim(1, -1)
    if above.shape[3] > below.shape[3]:
        above = above[..., : below.shape[3]]
    if above.shape[3] != below.shape[3] or 1 != min(len(above), len(below)) != len(above):
        raise NodeFailed("the pictures differ in channels or number", input="image2")
    share = number(call, "blend_factor")
    blended = _blended(below, above, argument(call, "blend_mode", str))
    return ((below * (1.0 - share) + blended * share).clamp(0.0, 1.0).contiguous(),)


def _blended(a: torch.Tensor, b: torch.Tensor, mode: str) -> torch.Tensor:
    """`b` laid on `a`. Source: W3C, Compositing and Blending Level 1, section 10.1; `difference`
    keeps its sign, as recorded.
    """
    match mode:
        case "normal":
            return b
        case "multiply":
            return a * b
        case "screen":
            return 1.0 - (1.0 - a) * (1.0 - b)
        case "overlay":
            return torch.where(a <= 0.5, 2.0 * a * b, 1.0 - 2.0 * (1.0 - a) * (1.0 - b))
        case "soft_light":
            darker = a - (1.0 - 2.0 * b) * a * (1.0 - a)
            curve = torch.where(a <= 0.25, ((16.0 * a - 12.0) * a + 4.0) * a, a.sqrt())
            return torch.where(b <= 0.5, darker, a + (2.0 * b - 1.0) * (curve - a))
        case "difference":
            return a - b
    raise NodeFailed(f"unknown blend_mode {mode!r}", input="blend_mode")


@each_call
def image_blur(call: OpCall) -> tuple[Value, ...]:
    """image, blur_radius, sigma -> IMAGE, Gaussian; borders are mirrored."""
    radius = argument(call, "blur_radius", int)
    return (_filtered(image_argument(call, "image"), _gaussian(radius, number(call, "sigma"))),)


@each_call
def image_sharpen(call: OpCall) -> tuple[Value, ...]:
    """image, sharpen_radius, sigma, alpha -> IMAGE: what a blur takes away is added."""
    image, radius = image_argument(call, "image"), argument(call, "sharpen_radius", int)
    strength = SHARPEN_STRENGTH * number(call, "alpha")
    kernel = -strength * _gaussian(radius, number(call, "sigma"))
    kernel[radius, radius] += 1.0 - kernel.sum()
    return (_filtered(image, kernel).clamp(0.0, 1.0),)


def _gaussian(radius: int, sigma: float) -> torch.Tensor:
    """[2r + 1, 2r + 1] of sum 1; `sigma` is in units of the radius."""
    places = torch.linspace(-1.0, 1.0, 2 * radius + 1)
    weights = torch.exp(-(places.square()) / (2.0 * sigma * sigma))
    kernel = weights[:, None] * weights[None, :]
    return kernel / kernel.sum()


def _filtered(image: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    radius, channels = kernel.shape[0] // 2, image.shape[3]
    if radius >= min(image.shape[1:3]):
        raise NodeFailed(f"a radius of {radius} is too large for the picture")
    padded = torch.nn.functional.pad(image.movedim(-1, 1), (radius,) * 4, mode="reflect")
    weights = kernel.expand(channels, 1, -1, -1)
    filtered = torch.nn.functional.conv2d(padded, weights, groups=channels)
    return filtered.movedim(1, -1).contiguous()
