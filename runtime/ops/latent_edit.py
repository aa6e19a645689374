"""The bodies of nodes that change latents: resize, compose, repeat, join, take from a batch.

What a latent carries beside its samples stays, as in ComfyUI. Source: ComfyUI 0.8.0, `nodes.json`
of the goldens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import torch

from ..errors import NodeFailed
from ..values import LATENT_PIXELS, Latent
from .arguments import argument
from .base import OpCall, OpContext, OpResult
from .resample import crop_to_aspect, resample

MIN_SIDE: Final = 64  # pixels that a side is scaled to at least, where it is given
MAX_LATENT_BYTES: Final = 2**31


def latent_upscale(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """samples, upscale_method, width, height (pixels), crop -> LATENT.

    A side of 0 keeps the proportions; two of them change nothing.
    """
    results = []
    for call in calls:
        context.check_cancelled()
        latent = latent_argument(call, "samples")
        rows, columns = latent.samples.shape[-2:]
        width, height = argument(call, "width", int), argument(call, "height", int)
        if width == 0 and height == 0:
            results.append(OpResult(outputs=(latent,)))
            continue
        given = [max(MIN_SIDE, side) if side else 0 for side in (width, height)]
        width = given[0] or max(MIN_SIDE, round(columns * given[1] / rows))
        height = given[1] or max(MIN_SIDE, round(rows * given[0] / columns))
        is_cropped = argument(call, "crop", str) == "center"
        results.append(
            _resized(call, latent, width // LATENT_PIXELS, height // LATENT_PIXELS, is_cropped)
        )
    return results


def latent_upscale_by(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """samples, upscale_method, scale_by -> LATENT."""
    results = []
    for call in calls:
        context.check_cancelled()
        latent, factor = latent_argument(call, "samples"), argument(call, "scale_by", float)
        rows, columns = (round(side * factor) for side in latent.samples.shape[-2:])
        results.append(_resized(call, latent, columns, rows, is_cropped=False))
    return results


def latent_composite(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """samples_to, samples_from, x, y, feather (pixels) -> LATENT: the second laid onto the first.

    What would reach beyond the first is cut off. Over `feather` the second fades in from those of
    its sides that lie inside the first.
    """
    results = []
    for call in calls:
        below, above = (
            latent_argument(call, "samples_to"),
            latent_argument(call, "samples_from").samples,
        )
        x, y, feather = (argument(call, n, int) // LATENT_PIXELS for n in ("x", "y", "feather"))
        samples = below.samples.clone()
        room = samples[..., y:, x:]
        above = above[..., : room.shape[-2], : room.shape[-1]]
        room = room[..., : above.shape[-2], : above.shape[-1]]
        if above.shape[1:-2] != room.shape[1:-2] or len(above) not in (1, len(room)):
            raise NodeFailed(
                f"latents of shape {list(above.shape)} can't be laid onto {list(samples.shape)}"
            )
        down = _fade(above.shape[-2], feather, y > 0, y + above.shape[-2] < samples.shape[-2])
        across = _fade(above.shape[-1], feather, x > 0, x + above.shape[-1] < samples.shape[-1])
        share = down[:, None] * across[None, :]
        room.copy_(above * share + room * (1.0 - share))
        results.append(_with_samples(below, samples))
    return results


def latent_repeat(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """samples, amount -> LATENT: the whole batch `amount` times.

    Noise indices go on where the batch before them ended, so that every item has its own noise.
    """
    results = []
    for call in calls:
        latent, amount = latent_argument(call, "samples"), argument(call, "amount", int)
        limit_latent(len(latent.samples) * amount, latent.samples.shape[1:])
        mask, numbers = latent.noise_mask, latent.batch_index
        if mask is not None and len(mask) > 1:
            mask = _repeated(_of_length(mask, len(latent.samples)), amount)
        if numbers:
            span = max(numbers) - min(numbers) + 1
            numbers = tuple(n + span * turn for turn in range(amount) for n in numbers)
        repeated = msgspec.structs.replace(
            latent,
            samples=_repeated(latent.samples, amount),
            noise_mask=mask,
            batch_index=numbers,
        )
        results.append(OpResult(outputs=(repeated,)))
    return results


def latent_batch(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """samples1, samples2 -> LATENT: both batches as one, the second resized to the first.

    Each item keeps the noise that it would have had in its own batch.
    """
    results = []
    for call in calls:
        first, second = latent_argument(call, "samples1"), latent_argument(call, "samples2")
        rows, columns = first.samples.shape[-2:]
        added = second.samples
        if added.shape[1:-2] != first.samples.shape[1:-2]:
            raise NodeFailed(
                f"latents of shape {list(added.shape)} can't join {list(first.samples.shape)}"
            )
        limit_latent(len(first.samples) + len(added), first.samples.shape[1:])
        if added.shape[-2:] != (rows, columns):
            added = resample_latent(added, "bilinear", columns, rows, is_cropped=True)
        joined = msgspec.structs.replace(
            first,
            samples=torch.cat([first.samples, added]),
            batch_index=(*_numbers(first), *_numbers(second)),
        )
        results.append(OpResult(outputs=(joined,)))
    return results


def latent_from_batch(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """samples, batch_index, length -> LATENT: `length` items, or as many as there are."""
    results = []
    for call in calls:
        latent = latent_argument(call, "samples")
        count = len(latent.samples)
        first = min(argument(call, "batch_index", int), count - 1)
        wanted = slice(first, first + min(argument(call, "length", int), count - first))
        mask = latent.noise_mask
        if mask is not None and len(mask) > 1:
            mask = _of_length(mask, count)[wanted].clone()
        taken = msgspec.structs.replace(
            latent,
            samples=latent.samples[wanted].clone(),
            noise_mask=mask,
            batch_index=_numbers(latent)[wanted],
        )
        results.append(OpResult(outputs=(taken,)))
    return results


def _resized(call: OpCall, latent: Latent, width: int, height: int, is_cropped: bool) -> OpResult:
    """The latent with samples of `width` x `height` latent units."""
    samples = latent.samples
    limit_latent(len(samples), (*samples.shape[1:-2], height, width))
    method = argument(call, "upscale_method", str)
    if method == "lanczos":
        raise NodeFailed("latents can't be scaled by 'lanczos'", input="upscale_method")
    return _with_samples(latent, resample_latent(samples, method, width, height, is_cropped))


def resample_latent(
    samples: torch.Tensor, method: str, width: int, height: int, is_cropped: bool
) -> torch.Tensor:
    """Resize the two last sides; frames of a fifth dimension go through one by one."""
    if is_cropped:
        samples = crop_to_aspect(samples, width / height)
    if samples.dim() == 4:
        return resample(samples, method, width, height).contiguous()
    frames = samples.movedim(2, 1)
    resized = resample(frames.flatten(0, 1), method, width, height)
    shape = (*frames.shape[:3], height, width)
    return resized.reshape(shape).movedim(1, 2).contiguous()


def _fade(length: int, feather: int, is_start_inside: bool, is_end_inside: bool) -> torch.Tensor:
    """Share of each place along a side: it grows over `feather` from the sides inside."""
    share = torch.ones(length)
    ramp = (torch.arange(min(feather, length), dtype=torch.float32) + 1.0) / max(feather, 1)
    if is_start_inside:
        share[: len(ramp)] *= ramp
    if is_end_inside:
        share[length - len(ramp) :] *= ramp.flip(0)
    return share


def _repeated(tensor: torch.Tensor, amount: int) -> torch.Tensor:
    return tensor.repeat(amount, *[1] * (tensor.dim() - 1))


def _of_length(mask: torch.Tensor, count: int) -> torch.Tensor:
    """The masks of `count` items: those that are missing start again at the first."""
    return _repeated(mask, math.ceil(count / len(mask)))[:count]


def _numbers(latent: Latent) -> tuple[int, ...]:
    """Which noise each item takes."""
    return latent.batch_index or tuple(range(len(latent.samples)))


def _with_samples(latent: Latent, samples: torch.Tensor) -> OpResult:
    return OpResult(outputs=(msgspec.structs.replace(latent, samples=samples),))


def latent_argument(call: OpCall, name: str) -> Latent:
    """A LATENT of 4 or 5 dimensions. Raises: NodeFailed."""
    latent = argument(call, name, Latent)
    if latent.samples.dim() not in (4, 5) or 0 in latent.samples.shape:
        raise NodeFailed(
            f"input {name} must be latents [B, C, H, W], not of shape {list(latent.samples.shape)}",
            input=name,
        )
    return latent


def limit_latent(count: int, item: Sequence[int]) -> None:
    """Raises: NodeFailed: a latent of that many items would be empty or too large."""
    num_bytes = count * math.prod(item) * torch.float32.itemsize
    if min(count, *item) < 1 or num_bytes > MAX_LATENT_BYTES:
        raise NodeFailed(
            f"a latent of shape {[count, *item]} is empty or has more than {MAX_LATENT_BYTES} bytes"
        )
