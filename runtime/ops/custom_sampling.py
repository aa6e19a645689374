"""Bodies of nodes beside a run of samplers: noise on latents, operations on them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from ...graph_import.sampling.guiders import CfgPatch, cfg_patches
from ..errors import NodeFailed
from ..sampling.latent_format import from_denoiser_space, to_denoiser_space
from ..sampling.latent_operations import sharpened, tonemap_reinhard
from ..sampling.noise import initial_noise
from ..values import Latent, SamplingRun
from .arguments import argument
from .base import OpCall, OpContext, OpResult
from .turns import family_argument, sampling_argument, sigmas_argument


def add_noise(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """`latent` under noise of the difference of the first and the last of `sigmas`."""
    return [OpResult(outputs=(_noised(call),)) for call in calls]


def _noised(call: OpCall) -> Latent:
    latent, family = argument(call, "latent", Latent), family_argument(call)
    sigmas, seed = sigmas_argument(call), argument(call, "seed", int)
    samples = latent.samples
    noise = torch.zeros_like(samples)
    if argument(call, "add_noise", bool):
        noise = initial_noise(samples.shape, seed, latent.batch_index).to(samples.device)
    reach = abs(sigmas[0] - sigmas[-1]) if len(sigmas) > 1 else sigmas[0]
    space = to_denoiser_space(samples.to(torch.float32), family)
    noised = sampling_argument(call).noised_picture(space, noise, reach)
    return Latent(samples=from_denoiser_space(noised, family).nan_to_num(0.0, 0.0, 0.0))


def sample_denoised(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The last evaluation's estimate of the picture, as a LATENT socket carries it."""
    results: list[OpResult] = []
    for call in calls:
        run = argument(call, "state", SamplingRun)
        if run.denoised is None:
            raise NodeFailed("the run kept no estimate", node_id=call.node_id)
        samples = from_denoiser_space(run.denoised, family_argument(call))
        latent = msgspec.structs.replace(argument(call, "latent", Latent), samples=samples)
        results.append(OpResult(outputs=(latent,)))
    return results


def latent_operation(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """`samples` changed by an operation."""
    results: list[OpResult] = []
    for call in calls:
        latent = argument(call, "samples", Latent)
        (operation,) = cfg_patches(argument(call, "operation", str))
        samples = _operated(latent.samples, operation)
        results.append(OpResult(outputs=(msgspec.structs.replace(latent, samples=samples),)))
    return results


def _operated(samples: torch.Tensor, operation: CfgPatch) -> torch.Tensor:
    if operation.name == "LatentOperationTonemapReinhard":
        return tonemap_reinhard(samples, operation.number("multiplier"))
    radius, sigma, alpha = (operation.number(n) for n in ("sharpen_radius", "sigma", "alpha"))
    return sharpened(samples, int(radius), sigma, alpha)
