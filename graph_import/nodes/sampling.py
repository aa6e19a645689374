"""KSampler: noise, one DAG node per model evaluation, and the way back to a latent.

`lower_run` is every sampling node's.
"""

from __future__ import annotations

from ..families import sampling_of
from ..handles import MODEL_SAMPLING, ModelRef
from ..sampling.samplers import SAMPLER_NAMES
from ..sampling.schedules import SCHEDULE_NAMES, ksampler_sigmas
from ..types import CONDITIONING, LATENT, MODEL
from .base import NodeClass
from .controls import guides
from .lowering import Lowering, Value
from .runs import begin_run, end_run, take_step
from .schema import NodeSchema, combo, integer, number, ports, socket

MAX_SEED = 2**64 - 1
MAX_STEPS = 10000


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
            integer("steps", default=20, min=1, max=MAX_STEPS),
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
            sampling_of(model.key.family, model.option(MODEL_SAMPLING)),
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
    latent = node.edge("latent_image")
    if not sigmas:
        return (latent,)
    guided = guides(node)
    run = begin_run(
        node,
        latent,
        seed,
        model,
        sampler_name=sampler_name,
        sigmas=sigmas,
        is_noise_added=is_noise_added,
    )
    for _ in range(run.num_steps):
        run = take_step(node, run, model, guided)
    return end_run(node, run)
