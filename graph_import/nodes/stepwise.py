"""Node classes of workflows that sample step by step in Python; the listings don't show them.

A KSampler's DAG nodes come from the same functions (`runs.py`, `controls.py`), so a loop over these
and a KSampler of the same settings are the same nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..sampling.samplers import SAMPLER_NAMES
from ..sampling.schedules import SCHEDULE_NAMES
from ..types import (
    CLIP,
    CONDITIONING,
    CONTROL_NET,
    ESTIMATE,
    IMAGE,
    LATENT,
    MODEL,
    RESIDUALS,
    SAMPLER_STATE,
)
from .base import NodeClass
from .controlnet import STRENGTH, control_on, is_off, steered
from .controls import guided_by
from .lora import LORAS, LoraClass, patched, strength
from .lowering import Constant, Lowering, Value
from .runs import begin_run, end_run, take_step
from .sampling import MAX_SEED, MAX_STEPS, schedule
from .schema import InputSpec, NodeSchema, combo, integer, number, ports, socket
from .values import Estimate, Run, Steered

CATEGORY: Final = "nodeloom"
MAX_RESIDUALS: Final = 8  # ControlNets on one call of a denoiser


class LatentsGenerator(NodeClass):
    """A latent under noise, ready for the first step of a schedule."""

    schema = NodeSchema(
        class_type="nodeloom.LatentsGenerator",
        display_name="Latents Generator",
        category=CATEGORY,
        inputs=(
            socket("model", MODEL),
            integer("seed", default=0, min=0, max=MAX_SEED),
            integer("steps", default=20, min=1, max=MAX_STEPS),
            combo("sampler_name", SAMPLER_NAMES, {"default": "euler"}),
            combo("scheduler", SCHEDULE_NAMES, {"default": "normal"}),
            socket("latent_image", LATENT),
            number("denoise", default=1.0, min=0.0, max=1.0, step=0.01),
        ),
        outputs=ports(latents=SAMPLER_STATE),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        node.require("steps", "sampler_name", "scheduler", "denoise")
        model, name = node.model("model"), node.text("sampler_name")
        sigmas = schedule(node, model, name, node.number("denoise"))
        if not sigmas:
            raise node.refusal("denoise", "0 leaves no steps to do")
        run = begin_run(
            node,
            node.edge("latent_image"),
            node.inputs["seed"],
            model,
            sampler_name=name,
            sigmas=sigmas,
            is_noise_added=True,
        )
        return (run,)


class ControlNetCall(NodeClass):
    """What a ControlNet adds to one call of a denoiser, which must get the same inputs."""

    schema = NodeSchema(
        class_type="nodeloom.ControlNet",
        display_name="ControlNet",
        category=CATEGORY,
        inputs=(
            socket("control_net", CONTROL_NET),
            socket("latents", SAMPLER_STATE),
            socket("positive", CONDITIONING),
            socket("negative", CONDITIONING),
            socket("image", IMAGE),
            STRENGTH,
        ),
        outputs=ports(residuals=RESIDUALS),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        steered_call = Steered(
            control=None if is_off(node) else control_on(node, 0.0, 1.0),
            run=_run(node, "latents"),
            positive=node.steering("positive"),
            negative=node.steering("negative"),
        )
        return (steered_call,)


class DenoiserCall(NodeClass):
    """A denoiser's estimate at the next step; it is evaluated where the sampler takes that step."""

    schema = NodeSchema(
        class_type="nodeloom.Denoiser",
        display_name="Denoiser",
        category=CATEGORY,
        inputs=(
            socket("model", MODEL),
            socket("latents", SAMPLER_STATE),
            socket("positive", CONDITIONING),
            socket("negative", CONDITIONING),
            number("cfg", default=8.0, min=0.0, max=100.0, step=0.1, round=0.01),
            *(
                InputSpec(name=f"residuals_{index}", type=RESIDUALS, is_required=False)
                for index in range(MAX_RESIDUALS)
            ),
        ),
        outputs=ports(estimate=ESTIMATE),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        model, run = node.model("model"), _run(node, "latents")
        if model.key.family != run.family:
            reason = f"latents of {run.family} don't fit {model.key.label()}"
            raise node.refusal("latents", reason)
        cfg = node.inputs["cfg"]
        sides = positive, negative = node.steering("positive"), node.steering("negative")
        for index, (name, given) in enumerate(_residuals(node)):
            if (given.run, given.positive, given.negative) != (run, *sides):
                reason = "made for other latents or conditionings than the denoiser's"
                raise node.refusal(name, reason)
            if given.control is None:
                continue
            positive = steered(node, positive, given.control, part=f"positive-{index}")
            negative = steered(node, negative, given.control, part=f"negative-{index}")
        if not isinstance(cfg, Constant):
            cfg = node.edge("cfg")
        estimate = Estimate(run=run, model=model, positive=positive, negative=negative, cfg=cfg)
        return (estimate,)


class SamplerStep(NodeClass):
    """One step of the schedule: evaluates the denoiser (twice, for some samplers) and moves on."""

    schema = NodeSchema(
        class_type="nodeloom.SamplerStep",
        display_name="Sampler Step",
        category=CATEGORY,
        inputs=(socket("estimate", ESTIMATE), socket("latents", SAMPLER_STATE)),
        outputs=ports(latents=SAMPLER_STATE),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        estimate, run = node.inputs["estimate"], _run(node, "latents")
        if not isinstance(estimate, Estimate):
            raise node.refusal("estimate", "an estimate of a denoiser was expected")
        if estimate.run != run:
            raise node.refusal("estimate", "it is of other latents than these")
        if run.num_steps_done == run.num_steps:
            raise node.refusal("latents", f"all {run.num_steps} steps of the schedule are done")
        guided = guided_by(node, estimate.model, estimate.positive, estimate.negative, estimate.cfg)
        return (take_step(node, run, estimate.model, guided),)


class SamplerEnd(NodeClass):
    """What a run has come to, as a latent; all its steps must be done."""

    schema = NodeSchema(
        class_type="nodeloom.SamplerEnd",
        display_name="Sampler End",
        category=CATEGORY,
        inputs=(socket("latents", SAMPLER_STATE),),
        outputs=ports(latent=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        run = _run(node, "latents")
        if run.num_steps_done < run.num_steps:
            done = f"only {run.num_steps_done} of the schedule's {run.num_steps} steps are done"
            raise node.refusal("latents", done)
        return end_run(node, run)


class TextEncoderLora(LoraClass):
    """A LoRA on a text encoder alone."""

    schema = NodeSchema(
        class_type="nodeloom.TextEncoderLora",
        display_name="Load LoRA (Text Encoder Only)",
        category=CATEGORY,
        inputs=(socket("clip", CLIP), combo("lora_name", LORAS, {}), strength("strength_clip")),
        outputs=ports(CLIP=CLIP),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        node.require("lora_name", "strength_clip")
        return patched(node, {"clip": "strength_clip"})


STEPWISE: Final[tuple[type[NodeClass], ...]] = (
    LatentsGenerator,
    ControlNetCall,
    DenoiserCall,
    SamplerStep,
    SamplerEnd,
    TextEncoderLora,
)


def _run(node: Lowering, name: str) -> Run:
    run = node.inputs[name]
    if not isinstance(run, Run):
        raise node.refusal(name, "latents of a LatentsGenerator were expected")
    return run


def _residuals(node: Lowering) -> Iterator[tuple[str, Steered]]:
    for index in range(MAX_RESIDUALS):
        name = f"residuals_{index}"
        match node.inputs.get(name):
            case Steered() as given:
                yield name, given
            case None:
                continue
            case _:
                raise node.refusal(name, "residuals of a ControlNet were expected")
