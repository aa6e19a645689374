"""The bodies of nodes that make and change latents without a model.

What a latent carries beside its samples stays, as in ComfyUI. Source: ComfyUI 0.8.0, `nodes.json`
of the goldens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import torch

from ..errors import NodeFailed
from ..values import LATENT_PIXELS, Latent
from .arguments import argument, mask_argument, number
from .base import OpBody, OpCall, OpContext, OpResult
from .latent_edit import latent_argument, limit_latent, resample_latent

AXES: Final = {"x": -1, "y": -2, "t": -3}
MIN_CROP: Final = 8  # latent units that a crop leaves at least
MAX_BATCHES: Final = 4096


def _each(change: Callable[[OpCall], Latent]) -> OpBody:
    """A body that gives one latent per call."""

    def run(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        results = []
        for call in calls:
            context.check_cancelled()
            try:
                results.append(OpResult(outputs=(change(call),)))
            except (RuntimeError, IndexError) as problem:  # torch's words for shapes that don't fit
                raise NodeFailed(f"the latents don't fit: {problem}") from problem
        return results

    return run


def _zeros(call: OpCall) -> Latent:
    unit = argument(call, "unit", int)
    sides = [argument(call, name, int) // unit for name in ("height", "width")]
    frames = []
    if "length" in call.args:
        step, more = argument(call, "frame_step", int), call.args.get("more_frames", 0)
        frames = [(argument(call, "length", int) - 1) // step + 1 + int(bool(more))]
    item = [argument(call, "channels", int), *frames, *sides]
    count = argument(call, "batch_size", int)
    limit_latent(count, item)
    return Latent(samples=torch.zeros(count, *item))


def _two(call: OpCall, method: str = "bilinear") -> tuple[Latent, torch.Tensor, torch.Tensor]:
    """The first latent, its samples, and those of the second in the shape of the first's."""
    first, second = latent_argument(call, "samples1"), latent_argument(call, "samples2")
    return first, first.samples, _like(second.samples, first.samples, method)


def _like(samples: torch.Tensor, wanted: torch.Tensor, method: str = "bilinear") -> torch.Tensor:
    rows, columns = wanted.shape[-2:]
    if samples.shape[1:] != wanted.shape[1:]:
        samples = resample_latent(samples, method, columns, rows, is_cropped=True)
    return _of_length(samples, len(wanted))


def _of_length(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """`count` items: those that are missing start again at the first."""
    turns = math.ceil(count / len(tensor))
    return tensor.repeat(turns, *[1] * (tensor.dim() - 1))[:count]


def _with(latent: Latent, samples: torch.Tensor) -> Latent:
    limit_latent(len(samples), samples.shape[1:])
    return msgspec.structs.replace(latent, samples=samples.contiguous())


def _add(call: OpCall) -> Latent:
    latent, one, other = _two(call)
    return _with(latent, one + other)


def _subtract(call: OpCall) -> Latent:
    latent, one, other = _two(call)
    return _with(latent, one - other)


def _blend(call: OpCall) -> Latent:
    latent, one, other = _two(call, "bicubic")
    share = number(call, "blend_factor")
    return _with(latent, one * share + other * (1.0 - share))


def _interpolate(call: OpCall) -> Latent:
    latent, one, other = _two(call)
    share = number(call, "ratio")
    length, other_length = (torch.linalg.vector_norm(s, dim=1, keepdim=True) for s in (one, other))
    mixed = torch.nan_to_num(one / length) * share
    mixed = mixed + torch.nan_to_num(other / other_length) * (1.0 - share)
    direction = torch.nan_to_num(mixed / torch.linalg.vector_norm(mixed, dim=1, keepdim=True))
    return _with(latent, direction * (length * share + other_length * (1.0 - share)))


def _concat(call: OpCall) -> Latent:
    first, second = latent_argument(call, "samples1"), latent_argument(call, "samples2")
    dim = argument(call, "dim", str)
    parts = [first.samples, _of_length(second.samples, len(first.samples))]
    if dim.startswith("-"):
        parts.reverse()
    return _with(first, torch.cat(parts, dim=_axis(dim.removeprefix("-"))))


def _axis(dim: str) -> int:
    if dim not in AXES:
        raise NodeFailed(f"dim {dim!r} is none of {list(AXES)}", input="dim")
    return AXES[dim]


def _multiply(call: OpCall) -> Latent:
    latent = latent_argument(call, "samples")
    return _with(latent, latent.samples * number(call, "multiplier"))


def _cut(call: OpCall) -> Latent:
    latent, axis = latent_argument(call, "samples"), _axis(argument(call, "dim", str))
    index, amount = argument(call, "index", int), argument(call, "amount", int)
    size = latent.samples.shape[axis]
    first = min(index, size - 1) if index >= 0 else max(index + size, 0)
    return _with(latent, latent.samples.narrow(axis, first, min(amount, size - first)))


def _cut_to_batch(call: OpCall) -> Latent:
    """Slices of an axis; what is left over at its end is dropped. A picture has no `t`."""
    latent, axis = latent_argument(call, "samples"), _axis(argument(call, "dim", str))
    samples = latent.samples
    axis += samples.dim()
    if axis < 2:
        return latent
    size = min(argument(call, "slice_size", int), samples.shape[axis])
    num_slices = samples.shape[axis] // size
    kept = samples.narrow(axis, 0, num_slices * size)
    apart = kept.reshape(*kept.shape[:axis], num_slices, size, *kept.shape[axis + 1 :])
    return _with(latent, apart.movedim(axis, 1).flatten(0, 1))


def _crop(call: OpCall) -> Latent:
    latent = latent_argument(call, "samples")
    rows, columns = latent.samples.shape[-2:]
    width, height, x, y = (
        argument(call, name, int) // LATENT_PIXELS for name in ("width", "height", "x", "y")
    )
    # A side below MIN_CROP makes a negative start, which counts from the end, as in ComfyUI.
    x, y = min(x, columns - MIN_CROP), min(y, rows - MIN_CROP)
    return _with(latent, latent.samples[..., y : y + height, x : x + width])


def _flip(call: OpCall) -> Latent:
    latent = latent_argument(call, "samples")
    axis = 2 if argument(call, "flip_method", str).startswith("x") else 3
    return _with(latent, latent.samples.flip(axis))


def _rotate(call: OpCall) -> Latent:
    latent = latent_argument(call, "samples")
    degrees = argument(call, "rotation", str).partition(" ")[0]
    turns = {"90": 1, "180": 2, "270": 3}.get(degrees, 0)
    return _with(latent, latent.samples.rot90(turns, (3, 2)))


def _seed_behavior(call: OpCall) -> Latent:
    """`fixed`: every item takes the first one's noise; `random`: each its own."""
    latent = latent_argument(call, "samples")
    numbers = None
    if argument(call, "seed_behavior", str) == "fixed":
        first = latent.batch_index[0] if latent.batch_index else 0
        numbers = (first,) * len(latent.samples)
    return msgspec.structs.replace(latent, batch_index=numbers)


def _trim(call: OpCall) -> Latent:
    latent, amount = latent_argument(call, "samples"), argument(call, "trim_amount", int)
    return _with(latent, latent.samples[:, :, amount:])


def _replace_frames(call: OpCall) -> Latent:
    """Frames of `source` from `index` on; where they don't fit, nothing is replaced."""
    latent = latent_argument(call, "destination")
    if "source" not in call.args:
        return latent
    source, index = latent_argument(call, "source").samples, argument(call, "index", int)
    num_frames = latent.samples.shape[2]
    index = index + num_frames if index < 0 else index
    if not 0 <= index <= num_frames - source.shape[2]:
        return latent
    samples = latent.samples.clone()
    samples[:, :, index : index + source.shape[2]] = source
    return _with(latent, samples)


def _composite_masked(call: OpCall) -> Latent:
    latent = latent_argument(call, "destination")
    below, above = latent.samples, latent_argument(call, "source").samples
    rows, columns = below.shape[-2:]
    if argument(call, "resize_source", bool):
        above = resample_latent(above, "bilinear", columns, rows, is_cropped=False)
    above = _of_length(above, len(below))
    height, width = above.shape[-2:]
    shares = torch.ones_like(above)
    if "mask" in call.args:
        mask = mask_argument(call, "mask").unsqueeze(1)
        mask = torch.nn.functional.interpolate(mask, size=(height, width), mode="bilinear")
        shares = _of_length(mask, len(below)).expand_as(above)
    x, y = (argument(call, name, int) // LATENT_PIXELS for name in ("x", "y"))
    x, y = min(x, columns), min(y, rows)
    height, width = min(height, rows - y), min(width, columns - x)
    samples = below.clone()
    place = samples[..., y : y + height, x : x + width]
    share = shares[..., :height, :width]
    place.copy_(above[..., :height, :width] * share + place * (1.0 - share))
    return _with(latent, samples)


latent_zeros = _each(_zeros)
latent_add = _each(_add)
latent_subtract = _each(_subtract)
latent_interpolate = _each(_interpolate)
latent_blend = _each(_blend)
latent_concat = _each(_concat)
latent_multiply = _each(_multiply)
latent_cut = _each(_cut)
latent_cut_to_batch = _each(_cut_to_batch)
latent_crop = _each(_crop)
latent_flip = _each(_flip)
latent_rotate = _each(_rotate)
latent_seed_behavior = _each(_seed_behavior)
latent_trim = _each(_trim)
latent_replace_frames = _each(_replace_frames)
latent_composite_masked = _each(_composite_masked)


def latent_rebatch(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """latents_N, batch_size -> a tuple of LATENTs of that many items, and how many they are.

    Items of another size begin a batch of their own. Items without a number of noise are numbered
    by their place among all.
    """
    results = []
    for call in calls:
        context.check_cancelled()
        size = argument(call, "batch_size", int)
        names = [name for name in call.args if name.startswith("latents_")]
        batches: list[Latent] = []
        open_items: list[Latent] = []
        place = 0
        for name in sorted(names, key=lambda name: int(name.removeprefix("latents_"))):
            for item in _items(latent_argument(call, name), place):
                if open_items and (
                    len(open_items) == size or _shape(item) != _shape(open_items[0])
                ):
                    batches.append(_joined(open_items))
                    open_items = []
                open_items.append(item)
                place += 1
        batches += [_joined(open_items)] if open_items else []
        if len(batches) > MAX_BATCHES:
            raise NodeFailed(f"{len(batches)} batches are too many: {MAX_BATCHES} may be")
        results.append(OpResult(outputs=(tuple(batches), len(batches))))
    return results


def _items(latent: Latent, place: int) -> list[Latent]:
    """The items of a batch, one by one; `place` is the first one's among all."""
    count = len(latent.samples)
    numbers = latent.batch_index or tuple(range(place, place + count))
    mask = None if latent.noise_mask is None else _of_length(latent.noise_mask, count)
    return [
        Latent(
            samples=latent.samples[i : i + 1],
            noise_mask=None if mask is None else mask[i : i + 1],
            batch_index=(numbers[i],),
        )
        for i in range(count)
    ]


def _shape(item: Latent) -> tuple[object, ...]:
    mask = None if item.noise_mask is None else item.noise_mask.shape
    return (item.samples.shape, mask)


def _joined(items: list[Latent]) -> Latent:
    masks = [item.noise_mask for item in items if item.noise_mask is not None]
    return Latent(
        samples=torch.cat([item.samples for item in items]),
        noise_mask=torch.cat(masks) if masks else None,
        batch_index=tuple(n for item in items for n in item.batch_index or ()),
    )
