"""Node classes that make one conditioning of others; what hangs on its entries stays there."""

from __future__ import annotations

from ..types import CONDITIONING
from .base import NodeClass
from .hooked import all_sets
from .lowering import Lowering, Steering, Value
from .schema import NodeSchema, number, ports, socket


class ConditioningCombine(NodeClass):
    """Two conditionings side by side: the denoiser's estimates for both are averaged."""

    schema = NodeSchema(
        class_type="ConditioningCombine",
        display_name="Conditioning (Combine)",
        category="conditioning",
        inputs=(
            socket("conditioning_1", CONDITIONING, is_bare=True),
            socket("conditioning_2", CONDITIONING, is_bare=True),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        first, second = node.steering("conditioning_1"), node.steering("conditioning_2")
        return (combined(node, first, second),)


class ConditioningAverage(NodeClass):
    """Texts mixed, token by token."""

    schema = NodeSchema(
        class_type="ConditioningAverage",
        display_name="ConditioningAverage",
        category="conditioning",
        inputs=(
            socket("conditioning_to", CONDITIONING, is_bare=True),
            socket("conditioning_from", CONDITIONING, is_bare=True),
            number("conditioning_to_strength", default=1.0, min=0.0, max=1.0, step=0.01),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return _steered(node, "conditioning_average", "conditioning_to")


class ConditioningConcat(NodeClass):
    """Texts one behind the other, as if they were one long text."""

    schema = NodeSchema(
        class_type="ConditioningConcat",
        display_name="Conditioning (Concat)",
        category="conditioning",
        inputs=(
            socket("conditioning_to", CONDITIONING, is_bare=True),
            socket("conditioning_from", CONDITIONING, is_bare=True),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return _steered(node, "conditioning_concat", "conditioning_to")


class ConditioningZeroOut(NodeClass):
    """A conditioning of zeros, of the same size."""

    schema = NodeSchema(
        class_type="ConditioningZeroOut",
        display_name="ConditioningZeroOut",
        category="advanced/conditioning",
        inputs=(socket("conditioning", CONDITIONING, is_bare=True),),
        outputs=ports(CONDITIONING=CONDITIONING),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return _steered(node, "conditioning_zero_out", "conditioning")


def combined(
    node: Lowering, first: Steering, second: Steering, part: str | None = None
) -> Steering:
    """The entries of both, with all that hangs on either.

    Raises: InputRefused: they have too many different sets of hooks.
    """
    args = {"conditioning_1": first, "conditioning_2": second}
    (edge,) = node.add("conditioning_combine", args, part=part)
    return Steering(
        edge=edge,
        controls=tuple(dict.fromkeys((*first.controls, *second.controls))),
        hooks=all_sets(node, (*first.hooks, *second.hooks)),
    )


def _steered(node: Lowering, op: str, name: str) -> tuple[Value, ...]:
    """`op` on all inputs; what hangs on the entries of input `name` stays."""
    (edge,) = node.add(op, node.inputs)
    return (node.steering(name).on(edge),)
