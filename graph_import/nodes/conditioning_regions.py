"""Node classes that say where on the picture, and when, a conditioning counts."""

from __future__ import annotations

from ..types import CONDITIONING, MASK
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import InputSpec, NodeSchema, combo, integer, number, ports, socket

MAX_RESOLUTION = 16384


def _strength() -> InputSpec:
    return number("strength", default=1.0, min=0.0, max=10.0, step=0.01)


class ConditioningSetArea(NodeClass):
    """Counts in a rectangle, in pixels."""

    schema = NodeSchema(
        class_type="ConditioningSetArea",
        display_name="Conditioning (Set Area)",
        category="conditioning",
        inputs=(
            socket("conditioning", CONDITIONING, is_bare=True),
            integer("width", default=64, min=64, max=MAX_RESOLUTION, step=8),
            integer("height", default=64, min=64, max=MAX_RESOLUTION, step=8),
            integer("x", default=0, min=0, max=MAX_RESOLUTION, step=8),
            integer("y", default=0, min=0, max=MAX_RESOLUTION, step=8),
            _strength(),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return _steered(node, "conditioning_set_area")


class ConditioningSetAreaPercentage(NodeClass):
    """Counts in a rectangle, in shares of the picture."""

    schema = NodeSchema(
        class_type="ConditioningSetAreaPercentage",
        display_name="Conditioning (Set Area with Percentage)",
        category="conditioning",
        inputs=(
            socket("conditioning", CONDITIONING, is_bare=True),
            number("width", default=1.0, min=0, max=1.0, step=0.01),
            number("height", default=1.0, min=0, max=1.0, step=0.01),
            number("x", default=0, min=0, max=1.0, step=0.01),
            number("y", default=0, min=0, max=1.0, step=0.01),
            _strength(),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return _steered(node, "conditioning_set_area_percentage")


class ConditioningSetMask(NodeClass):
    """Counts as a mask says."""

    schema = NodeSchema(
        class_type="ConditioningSetMask",
        display_name="Conditioning (Set Mask)",
        category="conditioning",
        inputs=(
            socket("conditioning", CONDITIONING, is_bare=True),
            socket("mask", MASK, is_bare=True),
            _strength(),
            combo("set_cond_area", ("default", "mask bounds"), None),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return _steered(node, "conditioning_set_mask")


class ConditioningSetTimestepRange(NodeClass):
    """Counts in a part of the sampling."""

    schema = NodeSchema(
        class_type="ConditioningSetTimestepRange",
        display_name="ConditioningSetTimestepRange",
        category="advanced/conditioning",
        inputs=(
            socket("conditioning", CONDITIONING, is_bare=True),
            number("start", default=0.0, min=0.0, max=1.0, step=0.001),
            number("end", default=1.0, min=0.0, max=1.0, step=0.001),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return _steered(node, "conditioning_set_timestep_range")


def _steered(node: Lowering, op: str) -> tuple[Value, ...]:
    (edge,) = node.add(op, node.inputs)
    return (node.steering("conditioning").on(edge),)
