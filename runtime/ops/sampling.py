"""Bodies of the nodes that a KSampler becomes: begin, one `denoise` per evaluation, end.

Calls of one `denoise` batch may belong to requests at different steps, with different samplers:
they share the model's forward alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import torch

from ...graph_import.sampling.base import SamplerState
from ..errors import NodeFailed
from ..sampling.guidance import guide
from ..sampling.latent_format import from_denoiser_space, noised_start, to_denoiser_space
from ..sampling.noise import NoiseStream, initial_noise, sampler_generator
from ..sampling.noise_mask import latent_mask, masked_estimate
from ..sampling.preview import PREVIEW_METHODS, Previews
from ..values import LATENT_PIXELS, KeptPicture, Latent, SamplingRun
from .arguments import argument, loaded
from .base import OpCall, OpContext, OpResult
from .turns import Turn, family_argument, sigmas_argument, turn_of

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
    samples = latent.samples
    model_family, sigmas = family_argument(call), sigmas_argument(call)
    seed = argument(call, "seed", int)
    if samples.ndim != 4 or samples.shape[1] != model_family.latent_channels:
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
        kept = KeptPicture(mask=mask, latents=latents, noise=noise)
    return SamplingRun(
        state=SamplerState(x=noised_start(latents, noise, sigmas, model_family)),
        generator=sampler_generator(seed),
        kept=kept,
    )


def denoise(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """One evaluation of the model with guidance, and the sampler's update, for each call.

    In strict mode every call is a batch of its own.
    """
    model = loaded(ctx)
    turns = [turn_of(call) for call in calls]
    groups = [[turn] for turn in turns] if ctx.is_strict else [turns]
    results: list[OpResult] = []
    for group in groups:
        ctx.check_cancelled()
        estimates = guide(model, [turn.row for turn in group])
        results += [
            _advance(turn, estimate, ctx.previews)
            for turn, estimate in zip(group, estimates, strict=True)
        ]
    return results


def _advance(turn: Turn, estimate: torch.Tensor, previews: Previews) -> OpResult:
    noise = NoiseStream(turn.run.generator)
    estimate = masked_estimate(turn.run, estimate)
    state = turn.sampler.update(turn.run.state, estimate, turn.evaluation, turn.sigmas, noise)
    preview = None
    method = turn.call.hidden.get("preview_method")
    if method in PREVIEW_METHODS:
        preview = previews.jpeg(method, estimate, family_argument(turn.call))
    run = SamplingRun(state=state, generator=noise.state(), kept=turn.run.kept)
    return OpResult(outputs=(run,), preview=preview)


def sample_end(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The run's latents as LATENT sockets carry them: `latent` with its samples replaced."""
    return [OpResult(outputs=(_end(call),)) for call in calls]


def _end(call: OpCall) -> Latent:
    x = argument(call, "state", SamplingRun).state.x
    return msgspec.structs.replace(
        argument(call, "latent", Latent), samples=from_denoiser_space(x, family_argument(call))
    )
