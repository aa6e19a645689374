"""What entries tell denoisers that take more than a text; what is given is left as it is.

Source: ComfyUI 0.8.0, `nodes.json` of the goldens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import torch

from ..values import CondEntry, Latent
from .arguments import argument, image_argument, number
from .base import OpCall, OpContext, OpResult
from .conditioning import changed
from .latent_edit import latent_argument, limit_latent
from .resample import crop_to_aspect, resample

UPSCALED: Final = 4  # pixels of the result along one side of a latent of the 4x upscaler
UPSCALED_CHANNELS: Final = 4
REFINER_CHANNELS: Final = 32
METHODS: Final = {"uxo/uno": "uxo"}  # the others are called as the node offers them

Change = Callable[[CondEntry], CondEntry]


def conditioning_guidance(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The scale that a guidance-distilled denoiser is told."""
    return _told(
        calls, lambda call: _more(guidance=number(call, "guidance"), is_guidance_off=False)
    )


def conditioning_no_guidance(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Such a denoiser is told no scale."""
    return _told(calls, lambda call: _more(guidance=None, is_guidance_off=True))


def conditioning_reference_method(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """How reference latents are told from the picture."""

    def change(call: OpCall) -> Change:
        name = argument(call, "reference_latents_method", str)
        return _more(reference_method=METHODS.get(name, name))

    return _told(calls, change)


def conditioning_reference_latent(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """One more latent to work from, if there is one."""
    return _told(calls, _referring)


def _referring(call: OpCall) -> Change:
    given = latent_argument(call, "latent").samples if "latent" in call.args else None

    def change(entry: CondEntry) -> CondEntry:
        if given is None:
            return entry
        return _more(reference_latents=(*entry.more.reference_latents, given))(entry)

    return change


def conditioning_cascade_prior(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The latents that stage C of a cascade made, for stage B."""
    return _told(calls, lambda call: _more(cascade_prior=latent_argument(call, "stage_c").samples))


def conditioning_frame_rate(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The frames per second of a video, on both sides."""
    results: list[OpResult] = []
    for call in calls:
        change = _more(frame_rate=number(call, "frame_rate"))
        results.append(OpResult(outputs=_both_sides(call, change)))
    return results


def conditioning_refiner_latent(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The latent of a video on both sides, to be refined, and zeros to begin with."""
    results: list[OpResult] = []
    for call in calls:
        samples = latent_argument(call, "latent").samples
        item = (REFINER_CHANNELS, *samples.shape[-3:])
        limit_latent(len(samples), item)
        zeros = Latent(samples=torch.zeros(len(samples), *item))
        results.append(OpResult(outputs=(*_both_sides(call, _refining(call)), zeros)))
    return results


def _refining(call: OpCall) -> Change:
    told = _more(noise_augmentation=number(call, "noise_augmentation"))
    samples = latent_argument(call, "latent").samples
    return lambda entry: msgspec.structs.replace(told(entry), concat_latent=samples)


def conditioning_upscale_picture(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """A picture on both sides, to be made larger, and zeros to begin with."""
    results: list[OpResult] = []
    for call in calls:
        images, ratio = image_argument(call, "images")[..., :3], number(call, "scale_ratio")
        height, width = (max(1, round(side * ratio)) // UPSCALED for side in images.shape[1:3])
        item = (UPSCALED_CHANNELS, height, width)
        limit_latent(len(images), item)
        zeros = Latent(samples=torch.zeros(len(images), *item))
        pixels = crop_to_aspect(images.movedim(-1, 1) * 2.0 - 1.0, width / height)
        change = _more(
            concat_image=resample(pixels, "bilinear", width, height),
            noise_augmentation=number(call, "noise_augmentation"),
        )
        results.append(OpResult(outputs=(*_both_sides(call, change), zeros)))
    return results


def _told(calls: Sequence[OpCall], change: Callable[[OpCall], Change]) -> list[OpResult]:
    return [changed(call, "conditioning", change(call)) for call in calls]


def _both_sides(call: OpCall, change: Change) -> tuple[Any, ...]:
    return tuple(
        output
        for side in ("positive", "negative")
        for output in changed(call, side, change).outputs
    )


def _more(**fields: Any) -> Change:
    def change(entry: CondEntry) -> CondEntry:
        more = msgspec.structs.replace(entry.more, **fields)
        return msgspec.structs.replace(entry, more=more)

    return change
