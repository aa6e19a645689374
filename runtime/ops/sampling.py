"""Bodies of the nodes that a KSampler becomes: begin, one `denoise` per evaluation, end.

Calls of one `denoise` batch may belong to requests at different steps, with different samplers:
they share the model's forward alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import torch

from ...graph_import.sampling.base import Estimate, NoiseKind
from ...graph_import.sampling.guiders import CFG_PATCHES, cfg_patches
from ..errors import NodeFailed
from ..sampling.guidance import Guidance, guide
from ..sampling.latent_format import (
    from_denoiser_space,
    to_denoiser_space,
    with_family_channels,
)
from ..sampling.noise import SEED_RANGE, initial_noise, noise_and_rest, sampler_generator
from ..sampling.noise_brownian import sampler_noise
from ..sampling.noise_mask import latent_mask, masked_estimate
from ..sampling.preview import PREVIEW_METHODS, Previews
from ..values import LATENT_PIXELS, KeptPicture, Latent, SamplingRun
from .arguments import argument, loaded, number
from .base import OpCall, OpContext, OpResult
from .resample import resample
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
    generator = torch.Generator().manual_seed(seed).get_state()
    noise = torch.zeros_like(samples, dtype=torch.float32)
    if argument(call, "add_noise", bool):
        drawn, generator = noise_and_rest(samples.shape, seed, latent.batch_index, samples.dtype)
        noise = drawn.to(noise)
    if named.noise is not NoiseKind.AFTER_START:
        generator = sampler_generator(seed)
    latents = to_denoiser_space(samples.to(torch.float32), model_family)
    kept = None
    if latent.noise_mask is not None:
        mask = latent_mask(latent.noise_mask, latents)
        own = noise
        if named.fresh_mask_noise:
            own = initial_noise(samples.shape, (seed + 1) % SEED_RANGE).to(samples.device)
        kept = KeptPicture(
            mask=mask,
            latents=latents,
            noise=own,
            by_sigma=number(call, "mask_by_sigma") if "mask_by_sigma" in call.args else 0.0,
            start_sigma=course.sigmas[0] if course.sigmas else 0.0,
        )
    start = latents
    if course.sigmas:
        start = course.sampling.noised(latents, noise, course.sigmas[0])
    return SamplingRun(
        state=named.begin(start, course),
        generator=generator,
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
    sigma, sampling = turn.evaluation.sigma, turn.course.sampling
    denoised = masked_estimate(turn.run, guidance.denoised, sigma, sampling)
    sized = _resized(turn, denoised)
    estimate = Estimate(sized, guidance.negative)
    state = turn.sampler.update(turn.run.state, estimate, turn.evaluation, turn.course, noise)
    preview = None
    method = turn.call.hidden.get("preview_method")
    if method in PREVIEW_METHODS:
        preview = previews.jpeg(method, denoised, family_argument(turn.call))
    run = msgspec.structs.replace(
        turn.run, state=state, generator=noise.state(), guidance_memory=guidance.memory
    )
    if turn.keeps_denoised and turn.run.state.x_eval is None:
        run = msgspec.structs.replace(run, denoised=denoised)
    return OpResult(outputs=(run,), preview=preview)


def _resized(turn: Turn, denoised: torch.Tensor) -> torch.Tensor:
    """The estimate in the size that the sampler's update needs. Raises: NodeFailed."""
    size = turn.sampler.resize(turn.run.state, turn.evaluation, turn.course)
    if size is None:
        return denoised
    if turn.run.kept is not None or denoised.ndim != 4:
        raise NodeFailed(
            f"{turn.sampler.name} changes the size of latents, so they can't have a noise mask "
            "or frames",
            node_id=turn.call.node_id,
        )
    shape = (*denoised.shape[:2], size.height, size.width)
    if math.prod(shape) * denoised.element_size() > MAX_LATENT_BYTES:
        raise NodeFailed(
            f"{turn.sampler.name} makes latents of shape {list(shape)}, which have more than "
            f"{MAX_LATENT_BYTES} bytes",
            node_id=turn.call.node_id,
        )
    return resample(denoised, size.method, size.width, size.height)


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
