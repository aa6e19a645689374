"""Bodies of the nodes that a KSampler becomes: begin, one `denoise` per evaluation, end.

Calls of one `denoise` batch may belong to requests at different steps, with different samplers:
they share the model's forward alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from ...graph_import.families import Family, family
from ...graph_import.sampling.base import Evaluation, Sampler, SamplerState
from ...graph_import.sampling.samplers import sampler
from ..errors import NodeFailed
from ..sampling.guidance import GuidedRow, guide
from ..sampling.latent_format import from_denoiser_space, noised_start
from ..sampling.noise import NoiseStream, initial_noise, sampler_generator
from ..sampling.preview import PREVIEW_METHODS, preview_jpeg
from ..values import Conditioning, Latent, SamplingRun
from .arguments import argument, loaded
from .base import OpCall, OpContext, OpResult

LATENT_PIXELS: Final = 8  # pixels along one side of a latent
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
    """Put noise on `latent` as `seed` and the first of `sigmas` say: the state of the run."""
    return [OpResult(outputs=(_begin(call),)) for call in calls]


def _begin(call: OpCall) -> SamplingRun:
    samples = argument(call, "latent", Latent).samples
    model_family, sigmas, seed = _family(call), _sigmas(call), argument(call, "seed", int)
    if samples.ndim != 4 or samples.shape[1] != model_family.latent_channels:
        raise NodeFailed(
            f"{model_family.name} samples latents [batch, {model_family.latent_channels}, height, "
            f"width], but the input latent is {list(samples.shape)}",
            node_id=call.node_id,
        )
    noise = initial_noise(samples.shape, seed).to(samples.device)
    x = noised_start(samples, noise, sigmas, model_family)
    return SamplingRun(state=SamplerState(x=x), generator=sampler_generator(seed))


@dataclass(slots=True, frozen=True)
class _Turn:
    """A `denoise` call taken apart."""

    call: OpCall
    run: SamplingRun
    sampler: Sampler
    sigmas: tuple[float, ...]
    evaluation: Evaluation
    row: GuidedRow


def denoise(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """One evaluation of the model with guidance, and the sampler's update, for each call.

    In strict mode every call is a batch of its own.
    """
    model = loaded(ctx)
    turns = [_turn(call) for call in calls]
    groups = [[turn] for turn in turns] if ctx.is_strict else [turns]
    results: list[OpResult] = []
    for group in groups:
        ctx.check_cancelled()
        estimates = guide(model, [turn.row for turn in group])
        results += [
            _advance(turn, estimate, ctx.preview_size)
            for turn, estimate in zip(group, estimates, strict=True)
        ]
    return results


def _turn(call: OpCall) -> _Turn:
    run, sigmas = argument(call, "state", SamplingRun), _sigmas(call)
    named = sampler(argument(call, "sampler", str))
    evaluation = named.plan(sigmas)[argument(call, "evaluation", int)]
    x = run.state.x if run.state.x_eval is None else run.state.x_eval
    row = GuidedRow(
        x=x,
        sigma=evaluation.sigma,
        positive=argument(call, "positive", Conditioning),
        negative=argument(call, "negative", Conditioning),
        cfg_scale=_number(call, "cfg"),
    )
    return _Turn(call=call, run=run, sampler=named, sigmas=sigmas, evaluation=evaluation, row=row)


def _advance(turn: _Turn, estimate: torch.Tensor, preview_size: int) -> OpResult:
    noise = NoiseStream(turn.run.generator)
    state = turn.sampler.update(turn.run.state, estimate, turn.evaluation, turn.sigmas, noise)
    preview = None
    if turn.call.hidden.get("preview_method") in PREVIEW_METHODS:
        preview = preview_jpeg(estimate, _family(turn.call), preview_size)
    return OpResult(outputs=(SamplingRun(state=state, generator=noise.state()),), preview=preview)


def sample_end(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The run's latents as LATENT sockets carry them: unscaled."""
    return [
        OpResult(
            outputs=(
                Latent(
                    samples=from_denoiser_space(
                        argument(call, "state", SamplingRun).state.x, _family(call)
                    )
                ),
            )
        )
        for call in calls
    ]


def _number(call: OpCall, name: str) -> float:
    value = call.args.get(name)
    return float(value) if isinstance(value, int) else argument(call, name, float)


def _family(call: OpCall) -> Family:
    return family(argument(call, "family", str))


def _sigmas(call: OpCall) -> tuple[float, ...]:
    """The falling sigmas of the run; a list where the params came over the wire."""
    sigmas = call.args.get("sigmas")
    if not isinstance(sigmas, tuple | list):
        raise NodeFailed("input 'sigmas' must be a sequence of floats", node_id=call.node_id)
    return tuple(float(sigma) for sigma in sigmas)
