"""Node classes that set where, when and under which hooks conditionings count, and join them.

Those for pairs do on each side what those for one conditioning do.
"""

from __future__ import annotations

from typing import Final

from ..ir import Port
from ..types import CONDITIONING, MASK
from .base import NodeClass
from .conditioning_arithmetic import combined
from .conditioning_rows import TIMESTEPS_RANGE
from .hooked import with_hooks
from .hooks import HOOKS, hooks_on
from .lowering import Lowering, Steering, Value
from .schema import InputSpec, NodeSchema, combo, number, ports, socket
from .tabled import Lower, node_class

MODULE: Final = "comfy_extras.nodes_hooks"
ONE: Final = "advanced/hooks/cond single"
PAIR: Final = "advanced/hooks/cond pair"
_HOOKS: Final = InputSpec(name="hooks", type=HOOKS, is_required=False)
_PROPERTIES: Final = (
    number("strength", default=1.0, min=0.0, max=10.0, step=0.01),
    combo("set_cond_area", ("default", "mask bounds"), None),
    InputSpec(name="mask", type=MASK, is_required=False),
    _HOOKS,
    InputSpec(name="timesteps", type=TIMESTEPS_RANGE, is_required=False),
)
_OUT: Final = ports(CONDITIONING=CONDITIONING)
_PAIR_OUT: Final = ports(positive=CONDITIONING, negative=CONDITIONING)
_SIDES: Final = ("positive", "negative")


def _with_properties(node: Lowering, name: str, part: str | None = None) -> Steering:
    """The conditioning on input `name` with the node's properties."""
    args = {
        n: v
        for n, v in node.inputs.items()
        if n in ("strength", "set_cond_area", "mask", "timesteps")
    }
    given = node.steering(name)
    (edge,) = node.add("conditioning_set_properties", {**args, "conditioning": given}, part=part)
    return with_hooks(node, given.on(edge), hooks_on(node, "hooks"), part=_part(part, "hooks"))


def _by_default(node: Lowering, name: str, side: str | None = None) -> Steering:
    """The conditioning on input `name` as one that counts where others leave a gap."""
    given = node.steering(name)
    (edge,) = node.add(
        "conditioning_set_default", {"conditioning": given}, part=_part(side, "default")
    )
    return with_hooks(node, given.on(edge), hooks_on(node, "hooks"), part=_part(side, "hooks"))


def _part(side: str | None, name: str) -> str:
    return name if side is None else f"{side}-{name}"


def _joined(node: Lowering) -> tuple[Value, ...]:
    new = _with_properties(node, "cond_NEW", part="new")
    return (combined(node, node.steering("cond"), new),)


def _pair_joined(node: Lowering) -> tuple[Value, ...]:
    return tuple(
        combined(
            node,
            node.steering(side),
            _with_properties(node, f"{side}_NEW", part=_part(side, "new")),
            part=side,
        )
        for side in _SIDES
    )


def _pair_default(node: Lowering) -> tuple[Value, ...]:
    return tuple(
        combined(node, node.steering(side), _by_default(node, f"{side}_DEFAULT", side), part=side)
        for side in _SIDES
    )


def _pair_combined(node: Lowering) -> tuple[Value, ...]:
    return tuple(
        combined(node, node.steering(f"{side}_A"), node.steering(f"{side}_B"), part=side)
        for side in _SIDES
    )


def _new(
    class_type: str,
    title: str,
    category: str,
    names: tuple[str, ...],
    more: tuple[InputSpec, ...],
    lower: Lower,
    doc: str,
    outputs: tuple[Port, ...],
) -> type[NodeClass]:
    schema = NodeSchema(
        class_type=class_type,
        display_name=title,
        category=category,
        python_module=MODULE,
        inputs=(*(socket(name, CONDITIONING, is_bare=True) for name in names), *more),
        outputs=outputs,
        is_experimental=True,
    )
    return node_class(schema, lower, doc)


_SHARE: Final = {"min": 0.0, "max": 1.0, "step": 0.001}
NODES: Final[tuple[type[NodeClass], ...]] = (
    _new(
        "ConditioningSetProperties",
        "Cond Set Props",
        ONE,
        ("cond_NEW",),
        _PROPERTIES,
        lambda node: (_with_properties(node, "cond_NEW"),),
        "Under a mask, hooks, in a part of the sampling: what of it is given.",
        _OUT,
    ),
    _new(
        "ConditioningSetPropertiesAndCombine",
        "Cond Set Props Combine",
        ONE,
        ("cond", "cond_NEW"),
        _PROPERTIES,
        _joined,
        "Sets properties of one conditioning, and joins it to another.",
        _OUT,
    ),
    _new(
        "ConditioningSetDefaultCombine",
        "Cond Set Default Combine",
        ONE,
        ("cond", "cond_DEFAULT"),
        (_HOOKS,),
        lambda node: (combined(node, node.steering("cond"), _by_default(node, "cond_DEFAULT")),),
        "Joins a conditioning that counts where the other leaves a gap.",
        _OUT,
    ),
    _new(
        "PairConditioningSetProperties",
        "Cond Pair Set Props",
        PAIR,
        ("positive_NEW", "negative_NEW"),
        _PROPERTIES,
        lambda node: tuple(_with_properties(node, f"{side}_NEW", part=side) for side in _SIDES),
        "Sets properties of both sides.",
        _PAIR_OUT,
    ),
    _new(
        "PairConditioningSetPropertiesAndCombine",
        "Cond Pair Set Props Combine",
        PAIR,
        (*_SIDES, "positive_NEW", "negative_NEW"),
        _PROPERTIES,
        _pair_joined,
        "Sets properties of both sides, and joins them to others.",
        _PAIR_OUT,
    ),
    _new(
        "PairConditioningSetDefaultCombine",
        "Cond Pair Set Default Combine",
        PAIR,
        (*_SIDES, "positive_DEFAULT", "negative_DEFAULT"),
        (_HOOKS,),
        _pair_default,
        "Joins to both sides conditionings that count where they leave a gap.",
        _PAIR_OUT,
    ),
    _new(
        "PairConditioningCombine",
        "Cond Pair Combine",
        PAIR,
        ("positive_A", "negative_A", "positive_B", "negative_B"),
        (),
        _pair_combined,
        "Joins two pairs, side by side.",
        _PAIR_OUT,
    ),
    node_class(
        NodeSchema(
            class_type="ConditioningTimestepsRange",
            display_name="Timesteps Range",
            category="advanced/hooks",
            python_module=MODULE,
            inputs=(
                number("start_percent", default=0.0, **_SHARE),
                number("end_percent", default=1.0, **_SHARE),
            ),
            outputs=ports(
                TIMESTEPS_RANGE=TIMESTEPS_RANGE,
                BEFORE_RANGE=TIMESTEPS_RANGE,
                AFTER_RANGE=TIMESTEPS_RANGE,
            ),
            is_experimental=True,
        ),
        lambda node: node.add("timesteps_ranges", node.inputs),
        "A part of the sampling, what is before it and what is behind it.",
    ),
)
