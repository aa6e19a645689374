"""Node classes that change the guidance of a model, and the LATENT_OPERATIONs.

A change is an option of the model's handle; later ones come after earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..ir import ParamValue
from ..sampling.guiders import CFG_PATCHES, CfgPatch, cfg_patches, patches_text
from ..types import LATENT, MODEL
from .base import NodeClass
from .lowering import Handle, Lowering, Value
from .schema import InputSpec, NodeSchema, integer, number, ports, socket
from .tabled import node_class
from .values import OperationValue

OPERATION: Final = "LATENT_OPERATION"
OPERATIONS: Final = "latent/advanced/operations"
LATENTS: Final = "comfy_extras.nodes_latent"
MAX_CFG_PATCHES: Final = 64  # on a model: every node that uses it carries them


def _patched(node: Lowering, patch: CfgPatch) -> Handle:
    handle = node.handle("model")
    patches = (*cfg_patches(handle.ref.option(CFG_PATCHES)), patch)
    if len(patches) > MAX_CFG_PATCHES:
        reason = f"{len(patches)} changes of its guidance are too many: {MAX_CFG_PATCHES} can be"
        raise node.refusal("model", reason)
    return handle.on(handle.ref.with_option(CFG_PATCHES, patches_text(patches)))


def _numbers(node: Lowering, specs: tuple[InputSpec, ...]) -> tuple[tuple[str, float], ...]:
    node.require(*(spec.name for spec in specs))
    return tuple((spec.name, node.number(spec.name)) for spec in specs)


def _patch(
    class_type: str,
    inputs: tuple[InputSpec, ...],
    doc: str,
    *,
    name: str = "",
    display_name: str | None = None,
    category: str,
    module: str,
    output: str = MODEL,
    is_v3: bool = True,
    is_experimental: bool = False,
) -> type[NodeClass]:
    """A class whose inputs beside the model are the numbers of a patch called `name`."""

    def lower(node: Lowering) -> tuple[Value, ...]:
        numbers = _numbers(node, inputs)
        return (_patched(node, CfgPatch(name=name or class_type, numbers=numbers)),)

    schema = NodeSchema(
        class_type=class_type,
        display_name=display_name,
        category=category,
        python_module=f"comfy_extras.{module}",
        inputs=(socket("model", MODEL, is_bare=not is_v3), *inputs),
        outputs=ports(**{output: MODEL}),
        is_v3=is_v3,
        is_experimental=is_experimental,
    )
    return node_class(schema, lower, doc)


def _operation(class_type: str, inputs: tuple[InputSpec, ...], doc: str) -> type[NodeClass]:
    def lower(node: Lowering) -> tuple[Value, ...]:
        patch = CfgPatch(name=class_type, numbers=_numbers(node, inputs))
        return (OperationValue(operation=patch),)

    return _latent_class(class_type, inputs, OPERATION, lower, doc)


def _latent_class(
    class_type: str,
    inputs: tuple[InputSpec, ...],
    output: str,
    lower: Callable[[Lowering], tuple[Value, ...]],
    doc: str,
) -> type[NodeClass]:
    schema = NodeSchema(
        class_type=class_type,
        display_name=None,
        category=OPERATIONS,
        python_module=LATENTS,
        inputs=inputs,
        outputs=ports(**{output: output}),
        is_v3=True,
        is_experimental=True,
    )
    return node_class(schema, lower, doc)


def _operation_on(node: Lowering) -> CfgPatch:
    value = node.inputs["operation"]
    if not isinstance(value, OperationValue):
        raise node.refusal("operation", f"a {OPERATION} was expected")
    return value.operation


def _apply(node: Lowering) -> tuple[Value, ...]:
    text: ParamValue = patches_text((_operation_on(node),))
    return node.add("latent_operation", {"samples": node.inputs["samples"], "operation": text})


def _factor(name: str, default: float, low: float, high: float, step: float) -> InputSpec:
    return number(name, default=default, min=low, max=high, step=step)


NODES: Final[tuple[type[NodeClass], ...]] = (
    _patch(
        "RescaleCFG",
        (_factor("multiplier", 0.7, 0.0, 1.0, 0.01),),
        "Guidance that keeps the deviation of the positive side.",
        display_name="RescaleCFG",
        category="advanced/model",
        module="nodes_model_advanced",
        is_v3=False,
    ),
    *(
        _patch(
            f"Video{shape}CFGGuidance",
            (number("min_cfg", default=1.0, min=0.0, max=100.0, step=0.5, round=0.01),),
            doc,
            display_name=f"Video{shape}CFGGuidance",
            category="sampling/video_models",
            module="nodes_video_model",
            is_v3=False,
        )
        for shape, doc in {
            "Linear": "A scale that rises from frame to frame.",
            "Triangle": "A scale that rises to the middle frame.",
        }.items()
    ),
    _patch(
        "TemporalScoreRescaling",
        (
            number("tsr_k", default=0.95, min=0.01, max=100.0, step=0.001, display="number"),
            number("tsr_sigma", default=1.0, min=0.01, max=100.0, step=0.001, display="number"),
        ),
        "The score as if the data were narrower or wider.",
        display_name="TSR - Temporal Score Rescaling",
        category="model_patches/unet",
        module="nodes_eps",
        output="patched_model",
    ),
    _patch(
        "Epsilon Scaling",
        (number("scaling_factor", default=1.005, min=0.5, max=1.5, step=0.001, display="number"),),
        "Predicted noise divided by a factor.",
        name="EpsilonScaling",
        category="model_patches/unet",
        module="nodes_eps",
    ),
    _patch(
        "RenormCFG",
        (
            number("cfg_trunc", default=100, min=0.0, max=100.0, step=0.01),
            _factor("renorm_cfg", 1.0, 0.0, 100.0, 0.01),
        ),
        "Guidance below a noise level, no longer than allowed.",
        category="advanced/model",
        module="nodes_lumina2",
    ),
    _patch(
        "CFGZeroStar",
        (),
        "The negative side scaled towards the positive one.",
        category="advanced/guidance",
        module="nodes_cfg",
        output="patched_model",
    ),
    _patch(
        "CFGNorm",
        (_factor("strength", 1.0, 0.0, 100.0, 0.01),),
        "Guidance no longer than the positive side.",
        category="advanced/guidance",
        module="nodes_cfg",
        output="patched_model",
        is_experimental=True,
    ),
    _patch(
        "FreSca",
        (
            number("scale_low", default=1.0, min=0, max=10, step=0.01),
            number("scale_high", default=1.25, min=0, max=10, step=0.01),
            integer("freq_cutoff", default=20, min=1, max=10000, step=1),
        ),
        "Low and high frequencies of the guidance scaled apart.",
        display_name="FreSca",
        category="_for_testing",
        module="nodes_fresca",
        is_experimental=True,
    ),
    _patch(
        "APG",
        (
            _factor("eta", 1.0, -10.0, 10.0, 0.01),
            _factor("norm_threshold", 5.0, 0.0, 50.0, 0.1),
            _factor("momentum", 0.0, -5.0, 1.0, 0.01),
        ),
        "Guidance whose part along the picture is weakened.",
        display_name="Adaptive Projected Guidance",
        category="sampling/custom_sampling",
        module="nodes_apg",
    ),
    _patch(
        "TCFG",
        (),
        "Guidance without what of the negative side leads astray.",
        display_name="Tangential Damping CFG",
        category="advanced/guidance",
        module="nodes_tcfg",
        output="patched_model",
    ),
    _operation(
        "LatentOperationTonemapReinhard",
        (_factor("multiplier", 1.0, 0.0, 100.0, 0.01),),
        "Long channel vectors compressed.",
    ),
    _operation(
        "LatentOperationSharpen",
        (
            integer("sharpen_radius", default=9, min=1, max=31, step=1),
            _factor("sigma", 1.0, 0.1, 10.0, 0.1),
            _factor("alpha", 0.1, 0.0, 5.0, 0.01),
        ),
        "Directions of channel vectors sharpened.",
    ),
    _latent_class(
        "LatentApplyOperation",
        (socket("samples", LATENT), socket("operation", OPERATION)),
        LATENT,
        _apply,
        "An operation on a latent.",
    ),
    _latent_class(
        "LatentApplyOperationCFG",
        (socket("model", MODEL), socket("operation", OPERATION)),
        MODEL,
        lambda node: (_patched(node, _operation_on(node)),),
        "An operation on the guidance.",
    ),
)
