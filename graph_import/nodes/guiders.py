"""Node classes that make GUIDERs: a model and the conditionings that guide it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from ..ir import Edge
from ..sampling.guiders import GuiderKind
from ..types import CONDITIONING, MODEL
from .base import NodeClass
from .lowering import Constant, Lowering, Value
from .schema import InputSpec, NodeSchema, number, ports, socket
from .sigma_schedules import CUSTOM_SAMPLER
from .tabled import choice, node_class
from .values import GuiderValue, PerpNeg

GUIDER: Final = "GUIDER"
PERP_NEG: Final = "comfy_extras.nodes_perpneg"
_MODEL: Final = socket("model", MODEL)
_NEG_SCALE: Final = number("neg_scale", default=1.0, min=0.0, max=100.0, step=0.01)


def _cfg(name: str) -> InputSpec:
    return number(name, default=8.0, min=0.0, max=100.0, step=0.1, round=0.01)


def number_on(node: Lowering, name: str) -> Constant | Edge:
    """The number on an input, or the edge that brings it. Raises: InputRefused."""
    value = node.inputs[name]
    return Constant(value=node.number(name)) if isinstance(value, Constant) else node.edge(name)


def _guider(
    class_type: str,
    inputs: tuple[InputSpec, ...],
    make: Callable[[Lowering], GuiderValue],
    doc: str,
    *,
    python_module: str = CUSTOM_SAMPLER,
    category: str = "sampling/custom_sampling/guiders",
    is_experimental: bool = False,
) -> type[NodeClass]:
    def lower(node: Lowering) -> tuple[Value, ...]:
        return (make(node),)

    schema = NodeSchema(
        class_type=class_type,
        display_name=None,
        category=category,
        python_module=python_module,
        inputs=(_MODEL, *inputs),
        outputs=ports(GUIDER=GUIDER),
        is_v3=True,
        is_experimental=is_experimental,
    )
    return node_class(schema, lower, doc)


def _basic(node: Lowering) -> GuiderValue:
    side = node.steering("conditioning")
    return GuiderValue(
        kind=GuiderKind.BASIC,
        model=node.model("model"),
        positive=side,
        negative=side,
        cfg=Constant(value=1.0),
    )


def cfg_guider(node: Lowering) -> GuiderValue:
    """Classifier-free guidance, or what the model has in its place. Raises: InputRefused."""
    model = node.handle("model")
    guider = GuiderValue(
        kind=GuiderKind.CFG,
        model=model.ref,
        positive=node.steering("positive"),
        negative=node.steering("negative"),
        cfg=number_on(node, "cfg"),
    )
    own = model.perp_neg
    if own is None:
        return guider
    return msgspec.structs.replace(
        guider, kind=GuiderKind.PERP_NEG, third=own.empty, cfg_third=own.scale
    )


def _dual(node: Lowering) -> GuiderValue:
    is_nested = node.text("style") == "nested"
    return GuiderValue(
        kind=GuiderKind.NESTED if is_nested else GuiderKind.DUAL,
        model=node.model("model"),
        positive=node.steering("cond1"),
        negative=node.steering("negative"),
        cfg=number_on(node, "cfg_conds"),
        third=node.steering("cond2"),
        cfg_third=number_on(node, "cfg_cond2_negative"),
    )


class PerpNegOnModel(NodeClass):
    """Perp-Neg for a model, wherever it is sampled with a positive and a negative side."""

    schema = NodeSchema(
        class_type="PerpNeg",
        display_name="Perp-Neg (DEPRECATED by PerpNegGuider)",
        category="_for_testing",
        python_module=PERP_NEG,
        inputs=(_MODEL, socket("empty_conditioning", CONDITIONING), _NEG_SCALE),
        outputs=ports(MODEL=MODEL),
        is_v3=True,
        is_deprecated=True,
        is_experimental=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        own = PerpNeg(empty=node.steering("empty_conditioning"), scale=number_on(node, "neg_scale"))
        return (msgspec.structs.replace(node.handle("model"), perp_neg=own),)


def _perp_neg(node: Lowering) -> GuiderValue:
    return GuiderValue(
        kind=GuiderKind.PERP_NEG,
        model=node.model("model"),
        positive=node.steering("positive"),
        negative=node.steering("negative"),
        cfg=number_on(node, "cfg"),
        third=node.steering("empty_conditioning"),
        cfg_third=number_on(node, "neg_scale"),
    )


NODES: Final[tuple[type[NodeClass], ...]] = (
    PerpNegOnModel,
    _guider(
        "BasicGuider",
        (socket("conditioning", CONDITIONING),),
        _basic,
        "One conditioning, without guidance.",
    ),
    _guider(
        "CFGGuider",
        (socket("positive", CONDITIONING), socket("negative", CONDITIONING), _cfg("cfg")),
        cfg_guider,
        "Classifier-free guidance.",
    ),
    _guider(
        "DualCFGGuider",
        (
            *(socket(name, CONDITIONING) for name in ("cond1", "cond2", "negative")),
            _cfg("cfg_conds"),
            _cfg("cfg_cond2_negative"),
            choice("style", ("regular", "nested")),
        ),
        _dual,
        "Two conditionings, each with a scale of its own.",
    ),
    _guider(
        "PerpNegGuider",
        (
            *(socket(name, CONDITIONING) for name in ("positive", "negative")),
            socket("empty_conditioning", CONDITIONING),
            _cfg("cfg"),
            _NEG_SCALE,
        ),
        _perp_neg,
        "Subtracts of the negative side what isn't along the positive one.",
        python_module=PERP_NEG,
        category="_for_testing",
        is_experimental=True,
    ),
)
