"""The DAG nodes of a sampling run: noise, a node per model evaluation, the way to a latent."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from ..handles import ModelRef
from ..ir import Edge, ParamValue
from ..sampling.base import Evaluation
from ..sampling.samplers import sampler
from .controls import Guides, add_controls
from .lowering import Lowering, Value
from .values import Run


def begin_run(
    node: Lowering,
    latent: Edge,
    seed: Value,
    *,
    family: str,
    sampler_name: str,
    sigmas: tuple[float, ...],
    is_noise_added: bool,
) -> Run:
    """`latent` under noise; no step is done yet."""
    run: dict[str, ParamValue] = {"sampler": sampler_name, "sigmas": sigmas, "family": family}
    start = {"latent": latent, "seed": seed, "add_noise": is_noise_added}
    (edge,) = node.add("sample_begin", {**start, **run}, part="begin")
    return Run(edge=edge, latent=latent, family=family, sampler=sampler_name, sigmas=sigmas)


def take_step(node: Lowering, run: Run, model: ModelRef, guided: Guides) -> Run:
    """The evaluations of the run's next step; a node each, and one per active ControlNet."""
    edge = run.edge
    for evaluation in _steps(run.sampler, run.sigmas)[run.num_steps_done]:
        args: dict[str, Value | ParamValue] = {
            **guided.args,
            "state": edge,
            "sampler": run.sampler,
            "sigmas": run.sigmas,
            "family": run.family,
            "evaluation": evaluation.index,
        }
        (edge,) = node.add(
            "denoise",
            {**args, **add_controls(node, guided, evaluation, args)},
            part=f"eval-{evaluation.index}",
            model=model,
            hidden=("preview_method",) if evaluation.is_step_end else (),
            value=evaluation.step + 1 if evaluation.is_step_end else 0,
            max_value=run.num_steps if evaluation.is_step_end else 0,
        )
    return msgspec.structs.replace(run, edge=edge, num_steps_done=run.num_steps_done + 1)


def end_run(node: Lowering, run: Run) -> tuple[Edge, ...]:
    """The LATENT that the run has come to."""
    args: dict[str, Value | ParamValue] = {
        "state": run.edge,
        "latent": run.latent,
        "sigmas": run.sigmas,
        "family": run.family,
    }
    return node.add("sample_end", args, part="end")


@lru_cache(maxsize=8)
def _steps(sampler_name: str, sigmas: tuple[float, ...]) -> tuple[tuple[Evaluation, ...], ...]:
    """The evaluations of each step."""
    steps: list[list[Evaluation]] = [[] for _ in sigmas[1:]]
    for evaluation in sampler(sampler_name).plan(sigmas):
        steps[evaluation.step].append(evaluation)
    return tuple(map(tuple, steps))
