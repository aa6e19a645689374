"""An evaluation's arguments, taken apart: what `denoise` and `controlnet` calls have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...graph_import.families import Family, family
from ...graph_import.sampling.base import Evaluation, Sampler
from ...graph_import.sampling.samplers import sampler
from ..errors import NodeFailed
from ..sampling.calls import PlannedCall
from ..sampling.guidance import GuidedRow, ResidualSource
from ..sampling.noise_mask import model_input
from ..values import CallResiduals, Conditioning, Residuals, SamplingRun
from .arguments import argument, number
from .base import OpCall


@dataclass(slots=True, frozen=True)
class Turn:
    """One evaluation of one run."""

    call: OpCall
    run: SamplingRun
    sampler: Sampler
    sigmas: tuple[float, ...]
    evaluation: Evaluation
    row: GuidedRow


def turn_of(call: OpCall) -> Turn:
    """The evaluation that a call asks for. Raises: NodeFailed."""
    run, sigmas = argument(call, "state", SamplingRun), sigmas_argument(call)
    named = sampler(argument(call, "sampler", str))
    evaluation = named.plan(sigmas)[argument(call, "evaluation", int)]
    row = GuidedRow(
        x=model_input(run, evaluation.sigma, family_argument(call)),
        sigma=evaluation.sigma,
        positive=argument(call, "positive", Conditioning),
        negative=argument(call, "negative", Conditioning),
        cfg_scale=number(call, "cfg"),
        family=family_argument(call),
        residuals=_residual_source(call),
    )
    return Turn(call=call, run=run, sampler=named, sigmas=sigmas, evaluation=evaluation, row=row)


def family_argument(call: OpCall) -> Family:
    """The family that the call names."""
    return family(argument(call, "family", str))


def sigmas_argument(call: OpCall) -> tuple[float, ...]:
    """The falling sigmas of the run; a list where the params came over the wire."""
    sigmas = call.args.get("sigmas")
    if not isinstance(sigmas, tuple | list):
        raise NodeFailed("input 'sigmas' must be a sequence of floats", node_id=call.node_id)
    return tuple(float(sigma) for sigma in sigmas)


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
            down=tuple(a + b for a, b in zip(total.down, more.down, strict=True)),
            mid=total.mid + more.mid,
        )
    return total
