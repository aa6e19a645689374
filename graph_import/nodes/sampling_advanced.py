"""KSamplerAdvanced: a window of a KSampler's steps."""

from __future__ import annotations

from ..sampling.samplers import SAMPLER_NAMES
from ..sampling.schedules import SCHEDULE_NAMES, step_window
from ..types import CONDITIONING, LATENT, MODEL
from .base import NodeClass
from .lowering import Lowering, Value
from .sampling import MAX_SEED, MAX_STEPS, lower_run, schedule
from .schema import NodeSchema, combo, integer, number, ports, socket

SWITCH = ("enable", "disable")


class KSamplerAdvanced(NodeClass):
    """Denoises a latent from a step to a step of a schedule, with or without noise at both ends.

    What shapes the schedule and the window must be constant, as for KSampler; a window without
    steps hands the latent on as it is.
    """

    schema = NodeSchema(
        class_type="KSamplerAdvanced",
        display_name="KSampler (Advanced)",
        category="sampling",
        inputs=(
            socket("model", MODEL, is_bare=True),
            combo("add_noise", SWITCH, None),
            integer("noise_seed", default=0, min=0, max=MAX_SEED, control_after_generate=True),
            integer("steps", default=20, min=1, max=MAX_STEPS),
            number("cfg", default=8.0, min=0.0, max=100.0, step=0.1, round=0.01),
            combo("sampler_name", SAMPLER_NAMES, None),
            combo("scheduler", SCHEDULE_NAMES, None),
            socket("positive", CONDITIONING, is_bare=True),
            socket("negative", CONDITIONING, is_bare=True),
            socket("latent_image", LATENT, is_bare=True),
            integer("start_at_step", default=0, min=0, max=MAX_STEPS),
            integer("end_at_step", default=10000, min=0, max=MAX_STEPS),
            combo("return_with_leftover_noise", tuple(reversed(SWITCH)), None),
        ),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        node.require(
            "add_noise",
            "steps",
            "sampler_name",
            "scheduler",
            "start_at_step",
            "end_at_step",
            "return_with_leftover_noise",
        )
        model, name = node.model("model"), node.text("sampler_name")
        sigmas = step_window(
            schedule(node, model, name, denoise=1.0),
            start=node.integer("start_at_step"),
            end=node.integer("end_at_step"),
            keeps_noise=node.text("return_with_leftover_noise") == "enable",
        )
        return lower_run(
            node,
            model,
            name,
            sigmas,
            node.inputs["noise_seed"],
            is_noise_added=node.text("add_noise") == "enable",
        )
