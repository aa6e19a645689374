"""KSampler: noise, one DAG node per model evaluation, and the way back to a latent."""

from __future__ import annotations

from ..families import family
from ..handles import ModelRef
from ..ir import Edge, ParamValue
from ..sampling.base import Evaluation
from ..sampling.samplers import SAMPLER_NAMES, sampler
from ..sampling.schedules import SCHEDULE_NAMES, ksampler_sigmas
from ..types import CONDITIONING, LATENT, MODEL
from .base import NodeClass
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
        sigmas = _sigmas(node, model, name)
        latent = node.inputs["latent_image"]
        if not sigmas:
            return (latent,)
        run: dict[str, ParamValue] = {"sigmas": sigmas, "family": model.key.family}
        (state,) = node.add(
            "sample_begin",
            {"latent": latent, "seed": node.inputs["seed"], "sampler": name, **run},
            part="begin",
        )
        for evaluation in sampler(name).plan(sigmas):
            (state,) = _denoise(node, model, evaluation, {"state": state, "sampler": name, **run})
        return node.add("sample_end", {"state": state, **run}, part="end")


def _sigmas(node: Lowering, model: ModelRef, sampler_name: str) -> tuple[float, ...]:
    try:
        return ksampler_sigmas(
            family(model.key.family).model_sampling,
            node.text("scheduler"),
            node.integer("steps"),
            node.number("denoise"),
            sampler_name,
        )
    except ValueError as problem:
        raise node.refusal("steps", str(problem)) from problem


def _denoise(
    node: Lowering, model: ModelRef, evaluation: Evaluation, args: dict[str, Value | ParamValue]
) -> tuple[Edge, ...]:
    num_steps = len(args["sigmas"]) - 1  # type: ignore[arg-type]  # the tuple of `lower`
    steering = {name: node.inputs[name] for name in ("positive", "negative", "cfg")}
    return node.add(
        "denoise",
        {**args, **steering, "evaluation": evaluation.index},
        part=f"eval-{evaluation.index}",
        model=model,
        hidden=("preview_method",) if evaluation.is_step_end else (),
        value=evaluation.step + 1 if evaluation.is_step_end else 0,
        max_value=num_steps if evaluation.is_step_end else 0,
    )
