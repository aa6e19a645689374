"""KSampler: noise, one DAG node per model evaluation, and the way back to a latent.

`lower_run` is every sampling node's.
"""

from __future__ import annotations

from ..families import family
from ..handles import ModelRef
from ..ir import Edge, ParamValue
from ..sampling.base import Evaluation
from ..sampling.samplers import SAMPLER_NAMES, sampler
from ..sampling.schedules import SCHEDULE_NAMES, ksampler_sigmas
from ..types import CONDITIONING, LATENT, MODEL
from .base import NodeClass
from .controls import Guides, add_controls, guides
from .lowering import Lowering, Value
from .schema import NodeSchema, combo, integer, number, ports, socket

MAX_SEED = 2**64 - 1


class KSampler(NodeClass):
    """Denoises a latent, in steps.

    The number of evaluations must be known, so steps, sampler, scheduler and denoise are constants;
    seed and cfg may come over edges. A denoise of 0 hands the latent on as it is.
    """

    schema = NodeSchema(
        class_type="KSampler",
        display_name="KSampler",
        category="sampling",
        inputs=(
            socket("model", MODEL),
            integer("seed", default=0, min=0, max=MAX_SEED, control_after_generate=True),
            integer("steps", default=20, min=1, max=10000),
            number("cfg", default=8.0, min=0.0, max=100.0, step=0.1, round=0.01),
            combo("sampler_name", SAMPLER_NAMES, {}),
            combo("scheduler", SCHEDULE_NAMES, {}),
            socket("positive", CONDITIONING),
            socket("negative", CONDITIONING),
            socket("latent_image", LATENT),
            number("denoise", default=1.0, min=0.0, max=1.0, step=0.01),
        ),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        node.require("steps", "sampler_name", "scheduler", "denoise")
        model = node.model("model")
        name = node.text("sampler_name")
        sigmas = schedule(node, model, name, node.number("denoise"))
        return lower_run(node, model, name, sigmas, node.inputs["seed"], is_noise_added=True)


def schedule(
    node: Lowering, model: ModelRef, sampler_name: str, denoise: float
) -> tuple[float, ...]:
    """The sigmas of `node`'s inputs `scheduler` and `steps`. Raises: InputRefused, NeedsValue."""
    try:
        return ksampler_sigmas(
            family(model.key.family).model_sampling,
            node.text("scheduler"),
            node.integer("steps"),
            denoise,
            sampler_name,
        )
    except ValueError as problem:
        raise node.refusal("steps", str(problem)) from problem


def lower_run(
    node: Lowering,
    model: ModelRef,
    sampler_name: str,
    sigmas: tuple[float, ...],
    seed: Value,
    *,
    is_noise_added: bool,
) -> tuple[Value, ...]:
    """The DAG nodes of a run over `sigmas`; without sigmas the latent is handed on as it is."""
    latent = node.inputs["latent_image"]
    if not sigmas:
        return (latent,)
    guided = guides(node, model)
    run: dict[str, ParamValue] = {"sigmas": sigmas, "family": model.key.family}
    start = {"latent": latent, "seed": seed, "add_noise": is_noise_added}
    (state,) = node.add("sample_begin", {**start, "sampler": sampler_name, **run}, part="begin")
    for evaluation in sampler(sampler_name).plan(sigmas):
        args: dict[str, Value | ParamValue] = {"state": state, "sampler": sampler_name, **run}
        (state,) = _denoise(node, model, evaluation, guided, args)
    return node.add("sample_end", {"state": state, "latent": latent, **run}, part="end")


def _denoise(
    node: Lowering,
    model: ModelRef,
    evaluation: Evaluation,
    guided: Guides,
    args: dict[str, Value | ParamValue],
) -> tuple[Edge, ...]:
    num_steps = len(args["sigmas"]) - 1  # type: ignore[arg-type]  # the tuple of `lower`
    args = {**args, **guided.args, "evaluation": evaluation.index}
    return node.add(
        "denoise",
        {**args, **add_controls(node, guided, evaluation, args)},
        part=f"eval-{evaluation.index}",
        model=model,
        hidden=("preview_method",) if evaluation.is_step_end else (),
        value=evaluation.step + 1 if evaluation.is_step_end else 0,
        max_value=num_steps if evaluation.is_step_end else 0,
    )
