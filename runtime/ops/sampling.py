"""Bodies of the nodes that a KSampler becomes: begin, one `denoise` per evaluation, end.

Calls of one `denoise` batch may belong to requests at different steps, with different samplers:
they share the model's forward alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import torch

from ...graph_import.sampling.base import Estimate
from ...graph_import.sampling.guiders import CFG_PATCHES, cfg_patches
from ..errors import NodeFailed
from ..sampling.guidance import Guidance, guide
from ..sampling.latent_format import (
    from_denoiser_space,
    to_denoiser_space,
    with_family_channels,
)
from ..sampling.noise import SEED_RANGE, initial_noise, sampler_generator
from ..sampling.noise_brownian import sampler_noise
from ..sampling.noise_mask import latent_mask, masked_estimate
from ..sampling.preview import PREVIEW_METHODS, Previews
from ..values import LATENT_PIXELS, KeptPicture, Latent, SamplingRun
from .arguments import argument, loaded
from .base import OpCall, OpContext, OpResult
from .turns import Turn, course_argument, family_argument, sampler_argument, turn_of

EMPTY_LATENT_CHANNELS: Final = 4
MAX_LATENT_BYTES: Final = 2**31


def empty_latent(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Zeros for pictures of `width` x `height` pixels, `batch_size` of them.

    Raises: NodeFailed: they would take more than MAX_LATENT_BYTES.
    """
    return [OpResult(outputs=(_zeros(call),)) for call in calls]


def _zeros(call: OpCall) -> Latent:
    shape = (
        argument(call, "batch_size", int),
        EMPTY_LATENT_CHANNELS,
        argument(call, "height", int) // LATENT_PIXELS,
        argument(call, "width", int) // LATENT_PIXELS,
    )
    num_bytes = torch.float32.itemsize
    for length in shape:
        num_bytes *= length
    if min(shape) < 1 or num_bytes > MAX_LATENT_BYTES:
        raise NodeFailed(
            f"a latent of shape {list(shape)} is empty or has more than {MAX_LATENT_BYTES} bytes",
            node_id=call.node_id,
        )
    return Latent(samples=torch.zeros(shape, dtype=torch.float32))


def sample_begin(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The state of a run: `latent` under noise as `seed` and the first of `sigmas` say.

    Without `add_noise` it starts from the latent as it is: one that has noise left in it.
    """
    return [OpResult(outputs=(_begin(call),)) for call in calls]


def _begin(call: OpCall) -> SamplingRun:
    latent = argument(call, "latent", Latent)
    model_family = family_argument(call)
    samples = with_family_channels(latent.samples, model_family)
    course, named = course_argument(call), sampler_argument(call)
    seed = argument(call, "seed", int)
    if samples.ndim not in (4, 5) or samples.shape[1] != model_family.latent_channels:
        raise NodeFailed(
            f"{model_family.name} samples latents [batch, {model_family.latent_channels}, height, "
            f"width], but the input latent is {list(samples.shape)}",
            node_id=call.node_id,
        )
    if argument(call, "add_noise", bool):
        noise = initial_noise(samples.shape, seed, latent.batch_index).to(samples.device)
    else:
        noise = torch.zeros_like(samples, dtype=torch.float32)
    latents = to_denoiser_space(samples.to(torch.float32), model_family)
    kept = None
    if latent.noise_mask is not None:
        mask = latent_mask(latent.noise_mask, latents)
        own = noise
        if named.fresh_mask_noise:
            own = initial_noise(samples.shape, (seed + 1) % SEED_RANGE).to(samples.device)
        kept = KeptPicture(mask=mask, latents=latents, noise=own)
    start = latents
    if course.sigmas:
        start = course.sampling.noised(latents, noise, course.sigmas[0])
    return SamplingRun(
        state=named.begin(start, course),
        generator=sampler_generator(seed),
        seed=seed,
        kept=kept,
    )


def denoise(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """One evaluation of the model with guidance, and the sampler's update, for each call.

    In strict mode every call is a batch of its own.
    """
    model = loaded(ctx)
    patches = cfg_patches(model.ref.option(CFG_PATCHES))
    turns = [turn_of(call) for call in calls]
    groups = [[turn] for turn in turns] if ctx.is_strict else [turns]
    results: list[OpResult] = []
    for group in groups:
        ctx.check_cancelled()
        guidances = guide(model, [turn.row for turn in group], patches)
        results += [
            _advance(turn, guidance, ctx.previews)
            for turn, guidance in zip(group, guidances, strict=True)
        ]
    return results


def _advance(turn: Turn, guidance: Guidance, previews: Previews) -> OpResult:
    noise = sampler_noise(turn.run, turn.sampler, turn.course)
    denoised = masked_estimate(turn.run, guidance.denoised)
    estimate = Estimate(denoised, guidance.negative)
    state = turn.sampler.update(turn.run.state, estimate, turn.evaluation, turn.course, noise)
    preview = None
    method = turn.call.hidden.get("preview_method")
    if method in PREVIEW_METHODS:
        preview = previews.jpeg(method, denoised, family_argument(turn.call))
    run = SamplingRun(
        state=state,
        generator=noise.state(),
        seed=turn.run.seed,
        kept=turn.run.kept,
        guidance_memory=guidance.memory,
        denoised=denoised if turn.keeps_denoised else None,
    )
    return OpResult(outputs=(run,), preview=preview)


def sample_end(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The run's latents as LATENT sockets carry them: `latent` with its samples replaced."""
    return [OpResult(outputs=(_end(call),)) for call in calls]


def _end(call: OpCall) -> Latent:
    run = argument(call, "state", SamplingRun)
    course, named = course_argument(call), sampler_argument(call)
    finished = run.state.x
    if course.sigmas:
        last = named.finish(run.state, course)
        finished = course.sampling.finished(last.x, named.last_sigma(course))
    return msgspec.structs.replace(
        argument(call, "latent", Latent),
        samples=from_denoiser_space(finished, family_argument(call)),
    )
