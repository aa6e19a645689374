"""Node classes that cut, turn and fill SIGMAS, and those that make NOISE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..sampling import sigma_lists
from ..sampling.schedules import MAX_SCHEDULE_STEPS
from .base import NodeClass
from .lowering import Constant, Lowering, Value
from .sampling import MAX_SEED
from .schema import InputSpec, NodeSchema, integer, number, ports, socket
from .sigma_schedules import CUSTOM_SAMPLER, SIGMAS
from .tabled import choice, node_class
from .values import NoiseValue, SigmasValue

NOISE: Final = "NOISE"
Sigmas = tuple[float, ...]
_SIGMAS: Final = socket("sigmas", SIGMAS)


def sigmas_on(node: Lowering, name: str = "sigmas") -> Sigmas:
    """The SIGMAS on an input. Raises: InputRefused: something else is there."""
    value = node.inputs[name]
    if not isinstance(value, SigmasValue):
        raise node.refusal(name, "SIGMAS were expected")
    return value.sigmas


def _edit(
    class_type: str,
    inputs: tuple[InputSpec, ...],
    make: Callable[[Lowering, Sigmas], tuple[Sigmas, ...]],
    doc: str,
    outputs: tuple[str, ...] = (SIGMAS,),
) -> type[NodeClass]:
    def lower(node: Lowering) -> tuple[Value, ...]:
        node.require(*(spec.name for spec in inputs))
        made = make(node, sigmas_on(node))
        if max(map(len, made)) > MAX_SCHEDULE_STEPS:
            raise node.refusal("sigmas", f"more than {MAX_SCHEDULE_STEPS} sigmas are too many")
        return tuple(SigmasValue(sigmas=sigmas) for sigmas in made)

    schema = NodeSchema(
        class_type=class_type,
        display_name=None,
        category="sampling/custom_sampling/sigmas",
        python_module=CUSTOM_SAMPLER,
        inputs=(_SIGMAS, *inputs),
        outputs=ports(**dict.fromkeys(outputs, SIGMAS)),
        is_v3=True,
    )
    return node_class(schema, lower, doc)


def _with_first(node: Lowering, sigmas: Sigmas) -> tuple[Sigmas, ...]:
    if not sigmas:
        raise node.refusal("sigmas", "there is no first one")
    return ((node.number("sigma"), *sigmas[1:]),)


def _random_noise(node: Lowering) -> tuple[Value, ...]:
    seed = node.inputs["noise_seed"]
    given = Constant(value=node.integer("noise_seed")) if isinstance(seed, Constant) else None
    return (NoiseValue(seed=given or node.edge("noise_seed")),)


def _noise_schema(class_type: str, inputs: tuple[InputSpec, ...]) -> NodeSchema:
    return NodeSchema(
        class_type=class_type,
        display_name=None,
        category="sampling/custom_sampling/noise",
        python_module=CUSTOM_SAMPLER,
        inputs=inputs,
        outputs=ports(NOISE=NOISE),
        is_v3=True,
    )


_HALVES: Final = ("high_sigmas", "low_sigmas")
NODES: Final[tuple[type[NodeClass], ...]] = (
    _edit(
        "SplitSigmas",
        (integer("step", default=0, min=0, max=10000),),
        lambda node, sigmas: sigma_lists.split(sigmas, node.integer("step")),
        "The steps before a step, and those from it on.",
        _HALVES,
    ),
    _edit(
        "SplitSigmasDenoise",
        (number("denoise", default=1.0, min=0.0, max=1.0, step=0.01),),
        lambda node, sigmas: sigma_lists.split_by_share(sigmas, node.number("denoise")),
        "The last share of the steps, and those before.",
        _HALVES,
    ),
    _edit(
        "FlipSigmas",
        (),
        lambda node, sigmas: (sigma_lists.flipped(sigmas),),
        "The sigmas from the last to the first.",
    ),
    _edit(
        "SetFirstSigma",
        (number("sigma", default=136.0, min=0.0, max=20000.0, step=0.001, round=False),),
        _with_first,
        "The sigmas with another first one.",
    ),
    _edit(
        "ExtendIntermediateSigmas",
        (
            integer("steps", default=2, min=1, max=100),
            number("start_at_sigma", default=-1.0, min=-1.0, max=20000.0, step=0.01, round=False),
            number("end_at_sigma", default=12.0, min=0.0, max=20000.0, step=0.01, round=False),
            choice("spacing", tuple(sigma_lists.SPACINGS)),
        ),
        lambda node, sigmas: (
            sigma_lists.extended(
                sigmas,
                node.integer("steps"),
                node.number("start_at_sigma"),
                node.number("end_at_sigma"),
                node.text("spacing"),
            ),
        ),
        "Steps between two sigmas, done in several.",
    ),
    node_class(
        _noise_schema(
            "RandomNoise",
            (integer("noise_seed", default=0, min=0, max=MAX_SEED, control_after_generate=True),),
        ),
        _random_noise,
        "Noise of a seed.",
    ),
    node_class(
        _noise_schema("DisableNoise", ()),
        lambda node: (NoiseValue(seed=None),),
        "No noise.",
    ),
)
