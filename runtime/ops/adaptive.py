"""The whole run of a sampler that chooses its evaluations by their outcome: one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import torch

from ...graph_import.model import Model
from ...graph_import.sampling.base import Estimate, SamplerState
from ...graph_import.sampling.guiders import CFG_PATCHES, cfg_patches
from ..errors import NodeFailed
from ..sampling.guidance import guide
from ..sampling.noise_brownian import sampler_noise
from ..sampling.noise_mask import masked_estimate
from ..sampling.preview import PREVIEW_METHODS
from ..values import SamplingRun
from .arguments import argument, loaded
from .base import OpCall, OpContext, OpResult
from .turns import course_argument, family_argument, row_of, sampler_argument

MAX_MODEL_CALLS: Final = 10_000  # a tolerance of next to nothing asks for ever smaller steps


def sample_adaptive(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The state after a whole run, call by call: their evaluations have nothing in common.

    Raises: NodeFailed: MAX_MODEL_CALLS were not enough, or the steps have no length left.
    """
    model = loaded(ctx)
    return [_sampled(ctx, model, call) for call in calls]


def _sampled(ctx: OpContext, model: Model, call: OpCall) -> OpResult:
    run, course, named = (
        argument(call, "state", SamplingRun),
        course_argument(call),
        sampler_argument(call),
    )
    patches = cfg_patches(model.ref.option(CFG_PATCHES))
    noise = sampler_noise(run, named, course)
    denoised: torch.Tensor | None = None
    requests = named.run(run.state.x, course, noise)
    estimate: Estimate | None = None
    for _ in range(MAX_MODEL_CALLS):
        try:
            asked = next(requests) if estimate is None else requests.send(estimate)
        except StopIteration as end:
            run = msgspec.structs.replace(
                run, state=SamplerState(x=end.value), generator=noise.state(), denoised=None
            )
            return _result(ctx, call, run, denoised)
        except ArithmeticError as problem:
            raise NodeFailed(str(problem), node_id=call.node_id) from problem
        ctx.check_cancelled()
        run = msgspec.structs.replace(run, state=SamplerState(x=asked.x))
        (guidance,) = guide(model, [row_of(call, run, asked.sigma, course, named)], patches)
        masked = masked_estimate(run, guidance.denoised, asked.sigma, course.sampling)
        estimate = Estimate(masked, guidance.negative)
        run = msgspec.structs.replace(run, guidance_memory=guidance.memory)
        if asked.is_step_start:
            denoised = estimate.denoised
    raise NodeFailed(
        f"{named.name} needs more than {MAX_MODEL_CALLS} evaluations of the model: its tolerances "
        "are too small, or its accept_safety is too large",
        node_id=call.node_id,
    )


def _result(
    ctx: OpContext, call: OpCall, run: SamplingRun, denoised: torch.Tensor | None
) -> OpResult:
    if call.args.get("keep_denoised") is True:
        run = msgspec.structs.replace(run, denoised=denoised)
    preview = None
    method = call.hidden.get("preview_method")
    if method in PREVIEW_METHODS and denoised is not None:
        preview = ctx.previews.jpeg(method, denoised, family_argument(call))
    return OpResult(outputs=(run,), preview=preview)
