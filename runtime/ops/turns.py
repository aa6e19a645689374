"""An evaluation's arguments, taken apart: what `denoise` and `controlnet` calls have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import torch

from ...graph_import.families import Family, family, sampling_of
from ...graph_import.sampling.base import Course, Evaluation, Sampler
from ...graph_import.sampling.guiders import GuiderKind
from ...graph_import.sampling.model_sampling import ModelSampling
from ...graph_import.sampling.samplers import sampler
from ..errors import NodeFailed
from ..sampling.calls import PlannedCall
from ..sampling.guidance import GuidedRow, ResidualSource
from ..sampling.noise_mask import model_input
from ..values import CallResiduals, Conditioning, Estimates, Residuals, SamplingRun
from .arguments import argument, number, numbered
from .base import OpCall
from .inpaint_channels import inpaint_channels


@dataclass(slots=True, frozen=True)
class Turn:
    """One evaluation of one run."""

    call: OpCall
    run: SamplingRun
    sampler: Sampler
    course: Course
    evaluation: Evaluation
    row: GuidedRow
    keeps_denoised: bool


def turn_of(call: OpCall) -> Turn:
    """The evaluation that a call asks for. Raises: NodeFailed."""
    run, course = argument(call, "state", SamplingRun), course_argument(call)
    named = sampler_argument(call)
    evaluation = planned(named, course)[argument(call, "evaluation", int)]
    return Turn(
        call=call,
        run=run,
        sampler=named,
        course=course,
        evaluation=evaluation,
        row=row_of(call, run, evaluation.sigma, course, named),
        keeps_denoised=call.args.get("keep_denoised") is True,
    )


def row_of(
    call: OpCall, run: SamplingRun, sigma: float, course: Course, named: Sampler
) -> GuidedRow:
    """What guidance needs for an evaluation of the run at `sigma`. Raises: NodeFailed."""
    return GuidedRow(
        x=model_input(run, sigma, course.sampling),
        sigma=sigma,
        positive=argument(call, "positive", Conditioning),
        negative=argument(call, "negative", Conditioning),
        cfg_scale=number(call, "cfg"),
        family=family_argument(call),
        residuals=_residual_source(call),
        model_sampling=course.sampling,
        guider=GuiderKind(str(call.args.get("guider", GuiderKind.CFG))),
        third=argument(call, "third", Conditioning) if "third" in call.args else None,
        cfg_third=number(call, "cfg_third") if "cfg_third" in call.args else 1.0,
        is_negative_needed=named.uses_uncond,
        memory=run.guidance_memory,
        estimates=_estimates(call),
        extra_channels=partial(inpaint_channels, run, family_argument(call)),
    )


def family_argument(call: OpCall) -> Family:
    """The family that the call names."""
    return family(argument(call, "family", str))


def sampling_argument(call: OpCall) -> ModelSampling:
    """How the denoiser measures noise: as the call says, or as its family does."""
    text = argument(call, "model_sampling", str) if "model_sampling" in call.args else ""
    return sampling_of(argument(call, "family", str), text)


def course_argument(call: OpCall) -> Course:
    """What the run goes along."""
    return Course(sigmas_argument(call), sampling_argument(call))


def sampler_argument(call: OpCall) -> Sampler:
    """The sampler that the call names, with its options."""
    return sampler(argument(call, "sampler", str))


@lru_cache(maxsize=64)
def planned(named: Sampler, course: Course) -> tuple[Evaluation, ...]:
    """The sampler's plan of a course; a run asks for it at each evaluation."""
    return named.plan(course)


def sigmas_argument(call: OpCall) -> tuple[float, ...]:
    """The falling sigmas of the run; a list where the params came over the wire."""
    sigmas = call.args.get("sigmas")
    if not isinstance(sigmas, tuple | list):
        raise NodeFailed("input 'sigmas' must be a sequence of floats", node_id=call.node_id)
    return tuple(float(sigma) for sigma in sigmas)


def _estimates(call: OpCall) -> dict[int, torch.Tensor]:
    """What other nodes evaluated of the plan, by position."""
    return {
        position: estimate
        for given in numbered(call, "estimates", Estimates)
        for position, estimate in enumerate(given.calls)
        if estimate is not None
    }


def _residual_source(call: OpCall) -> ResidualSource | None:
    """What the ControlNets of the call add, by the markers of the entries that they steer."""
    numbers = range(len(call.args))
    names = {
        argument(call, f"marker_{index}", str): f"residuals_{index}"
        for index in numbers
        if f"marker_{index}" in call.args
    }
    if not names:
        return None

    def source(plan: Sequence[PlannedCall]) -> list[Callable[[], CallResiduals | None] | None]:
        steered = [[names[m] for m in item.entry.controls if m in names] for item in plan]
        return [
            partial(_summed, call, inputs, index) if inputs else None
            for index, inputs in enumerate(steered)
        ]

    return source


def _summed(call: OpCall, inputs: Sequence[str], index: int) -> CallResiduals | None:
    """What several ControlNets add to call `index` of the plan; waits until it is all there."""
    sources = [argument(call, name, Residuals).calls for name in inputs]
    found = [calls[index] for calls in sources if index < len(calls)]
    given = [residuals for residuals in found if residuals is not None]
    if not given:
        return None
    total = given[0]
    for more in given[1:]:
        total = CallResiduals(
            blocks=tuple(a + b for a, b in zip(total.blocks, more.blocks, strict=True))
        )
    return total
