"""Node classes that sample with a SAMPLER along SIGMAS."""

from __future__ import annotations

from typing import Final

from ..handles import MODEL_SAMPLING
from ..ir import ParamValue
from ..sampling.guiders import GuiderKind
from ..types import CONDITIONING, LATENT, MODEL
from .base import NodeClass
from .controls import guided_by
from .guiders import GUIDER, cfg_guider
from .lowering import Constant, Lowering, Value
from .runs import begin_run, end_run, take_step
from .sampling import MAX_SEED
from .schema import NodeSchema, integer, number, ports, socket, switch
from .sigma_edits import NOISE, sigmas_on
from .sigma_schedules import CUSTOM_SAMPLER, SIGMAS
from .tabled import node_class
from .values import GuiderValue, NoiseValue, SamplerValue

SAMPLER: Final = "SAMPLER"
CATEGORY: Final = "sampling/custom_sampling"
_OUTPUTS: Final = ports(output=LATENT, denoised_output=LATENT)


def _custom(node: Lowering) -> tuple[Value, ...]:
    node.require("add_noise")
    added = node.inputs["add_noise"]
    is_noise_added = (
        bool(added.value) if isinstance(added, Constant) else bool(node.integer("add_noise"))
    )
    return _run(node, cfg_guider(node), node.inputs["noise_seed"], is_noise_added=is_noise_added)


def _custom_advanced(node: Lowering) -> tuple[Value, ...]:
    guider, noise = node.inputs["guider"], node.inputs["noise"]
    if not isinstance(guider, GuiderValue):
        raise node.refusal("guider", "a GUIDER was expected")
    if not isinstance(noise, NoiseValue):
        raise node.refusal("noise", "NOISE was expected")
    seed = Constant(value=0) if noise.seed is None else noise.seed
    return _run(node, guider, seed, is_noise_added=noise.seed is not None)


def _run(
    node: Lowering, guider: GuiderValue, seed: Value, *, is_noise_added: bool
) -> tuple[Value, ...]:
    """Both outputs of a run; of one without steps both are the latent as it is."""
    latent, sigmas, named = node.edge("latent_image"), sigmas_on(node), node.inputs["sampler"]
    if not isinstance(named, SamplerValue):
        raise node.refusal("sampler", "a SAMPLER was expected")
    if len(sigmas) < 2:
        return (latent, latent)
    if any(sigma < 0.0 for sigma in sigmas) or 0.0 in sigmas[:-1]:
        raise node.refusal("sigmas", "all but the last must be above 0")
    guided = guided_by(
        node, guider.model, guider.positive, guider.negative, guider.cfg, third=guider.third
    )
    more: dict[str, Value | ParamValue] = {}
    if guider.kind is not GuiderKind.CFG:
        more["guider"] = str(guider.kind)
    if guider.third is not None and guider.cfg_third is not None:
        more["cfg_third"] = guider.cfg_third
    guided = guided.with_args({**more, "keep_denoised": True})
    run = begin_run(
        node,
        latent,
        seed,
        guider.model,
        sampler_name=named.text,
        sigmas=sigmas,
        is_noise_added=is_noise_added,
    )
    for _ in range(run.num_steps):
        run = take_step(node, run, guider.model, guided)
    (output,) = end_run(node, run)
    (denoised,) = node.add(
        "sample_denoised",
        {"state": run.edge, "latent": latent, "family": run.family},
        part="denoised",
    )
    return (output, denoised)


def _add_noise(node: Lowering) -> tuple[Value, ...]:
    """Noise of the difference of the first and the last sigma, onto a latent."""
    noise, sigmas, model = node.inputs["noise"], sigmas_on(node), node.model("model")
    latent = node.edge("latent_image")
    if not isinstance(noise, NoiseValue):
        raise node.refusal("noise", "NOISE was expected")
    if not sigmas:
        return (latent,)
    args: dict[str, Value | ParamValue] = {
        "latent": latent,
        "seed": Constant(value=0) if noise.seed is None else noise.seed,
        "add_noise": noise.seed is not None,
        "sigmas": sigmas,
        "family": model.key.family,
    }
    if text := model.option(MODEL_SAMPLING):
        args["model_sampling"] = text
    return node.add("add_noise", args)


NODES: Final[tuple[type[NodeClass], ...]] = (
    node_class(
        NodeSchema(
            class_type="SamplerCustom",
            display_name=None,
            category=CATEGORY,
            python_module=CUSTOM_SAMPLER,
            inputs=(
                socket("model", MODEL),
                switch("add_noise", default=True),
                integer("noise_seed", default=0, min=0, max=MAX_SEED, control_after_generate=True),
                number("cfg", default=8.0, min=0.0, max=100.0, step=0.1, round=0.01),
                socket("positive", CONDITIONING),
                socket("negative", CONDITIONING),
                socket("sampler", SAMPLER),
                socket("sigmas", SIGMAS),
                socket("latent_image", LATENT),
            ),
            outputs=_OUTPUTS,
            is_v3=True,
        ),
        _custom,
        "Samples a latent along sigmas.",
    ),
    node_class(
        NodeSchema(
            class_type="SamplerCustomAdvanced",
            display_name=None,
            category=CATEGORY,
            python_module=CUSTOM_SAMPLER,
            inputs=(
                socket("noise", NOISE),
                socket("guider", GUIDER),
                socket("sampler", SAMPLER),
                socket("sigmas", SIGMAS),
                socket("latent_image", LATENT),
            ),
            outputs=_OUTPUTS,
            is_v3=True,
        ),
        _custom_advanced,
        "Samples a latent along sigmas, as a guider says.",
    ),
    node_class(
        NodeSchema(
            class_type="AddNoise",
            display_name=None,
            category="_for_testing/custom_sampling/noise",
            python_module=CUSTOM_SAMPLER,
            inputs=(
                socket("model", MODEL),
                socket("noise", NOISE),
                socket("sigmas", SIGMAS),
                socket("latent_image", LATENT),
            ),
            outputs=ports(LATENT=LATENT),
            is_v3=True,
            is_experimental=True,
        ),
        _add_noise,
        "Noise on a latent.",
    ),
)
