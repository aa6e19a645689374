"""The DAG nodes of a sampling run: noise, a node per model evaluation, the way to a latent."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from ..families import course_of
from ..handles import MASK_BY_SIGMA, MODEL_SAMPLING, ModelRef
from ..ir import Edge, ParamValue
from ..sampling.base import Course, Evaluation
from ..sampling.samplers import sampler
from ..sampling.trial import try_sampler
from .controls import Guides, add_controls
from .hooked import add_hooked
from .lowering import Lowering, Value
from .values import Run


def begin_run(
    node: Lowering,
    latent: Edge,
    seed: Value,
    model: ModelRef,
    *,
    sampler_name: str,
    sigmas: tuple[float, ...],
    is_noise_added: bool,
) -> Run:
    """`latent` under noise, for `model` to denoise; no step is done yet.

    Raises: InputRefused: the sampler can't go along the sigmas. GraphTooLarge.
    """
    run = Run(
        edge=latent,
        latent=latent,
        family=model.key.family,
        sampler=sampler_name,
        sigmas=sigmas,
        model_sampling=model.option(MODEL_SAMPLING),
    )
    _check_course(node, run)
    start: dict[str, Value | ParamValue] = {
        "latent": latent,
        "seed": seed,
        "add_noise": is_noise_added,
    }
    if strength := model.option(MASK_BY_SIGMA):
        start["mask_by_sigma"] = float(strength)
    (edge,) = node.add("sample_begin", {**start, **_course_args(run)}, part="begin")
    return msgspec.structs.replace(run, edge=edge)


def take_step(node: Lowering, run: Run, model: ModelRef, guided: Guides) -> Run:
    """The evaluations of the run's next step: a node each, and those of what hangs on entries."""
    if sampler(run.sampler).is_adaptive:
        return _take_all_steps(node, run, model, guided)
    edge, course = run.edge, course_of(run.family, run.model_sampling, run.sigmas)
    for evaluation in _steps(run.sampler, course)[run.num_steps_done]:
        args: dict[str, Value | ParamValue] = {
            **guided.args,
            **_course_args(run),
            "state": edge,
            "evaluation": evaluation.index,
        }
        args |= add_controls(node, guided, evaluation, args, run.latent)
        (edge,) = node.add(
            "denoise",
            {**args, **add_hooked(node, guided, evaluation, args, model)},
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
        **_course_args(run),
    }
    return node.add("sample_end", args, part="end")


def _check_course(node: Lowering, run: Run) -> None:
    named = sampler(run.sampler)
    if not named.is_adaptive:
        node.require_room(run.num_steps, run.num_steps * len(run.sigmas))
    try:
        try_sampler(named, course_of(run.family, run.model_sampling, run.sigmas))
    except ValueError as problem:
        field = "sigmas" if "sigmas" in node.inputs else "sampler_name"
        raise node.refusal(field, str(problem)) from problem


def _take_all_steps(node: Lowering, run: Run, model: ModelRef, guided: Guides) -> Run:
    """One node for the whole run of a sampler that chooses its evaluations by their outcome.

    Raises: InputRefused: a ControlNet steers it, or a hook hangs on a conditioning.
    """
    if guided.controls or guided.hooks:
        what = "no ControlNet can steer it" if guided.controls else "no hook can patch its model"
        reason = f"{sampler(run.sampler).name} chooses its own steps: {what}"
        raise node.refusal("positive", reason)
    edge = run.edge
    if run.num_steps_done == 0:
        (edge,) = node.add(
            "sample_adaptive",
            {**guided.args, **_course_args(run), "state": edge},
            part="adaptive",
            model=model,
            hidden=("preview_method",),
            value=run.num_steps,
            max_value=run.num_steps,
        )
    return msgspec.structs.replace(run, edge=edge, num_steps_done=run.num_steps_done + 1)


def _course_args(run: Run) -> dict[str, ParamValue]:
    """What all nodes of the run are told of it."""
    args: dict[str, ParamValue] = {
        "sampler": run.sampler,
        "sigmas": run.sigmas,
        "family": run.family,
    }
    return {**args, "model_sampling": run.model_sampling} if run.model_sampling else args


@lru_cache(maxsize=8)
def _steps(sampler_name: str, course: Course) -> tuple[tuple[Evaluation, ...], ...]:
    """The evaluations of each step."""
    steps: list[list[Evaluation]] = [[] for _ in course.sigmas[1:]]
    for evaluation in sampler(sampler_name).plan(course):
        steps[evaluation.step].append(evaluation)
    return tuple(map(tuple, steps))
