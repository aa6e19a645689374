"""Node classes that choose: only the branch that is chosen is run."""

from __future__ import annotations

from typing import Final

from ..ir import Port
from ..types import MATCH_TYPE
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import InputSpec, NodeSchema, switch


def _branch(name: str) -> InputSpec:
    template = {"template_id": "switch", "allowed_types": "*"}
    return InputSpec(name=name, type=MATCH_TYPE, options={"lazy": True, "template": template})


class ComfySwitchNode(NodeClass):
    """One of two values; what the other would cost is saved."""

    schema = NodeSchema(
        class_type="ComfySwitchNode",
        display_name="Switch",
        category="logic",
        python_module="comfy_extras.nodes_logic",
        inputs=(switch("switch"), _branch("on_false"), _branch("on_true")),
        outputs=(Port(name="output", type=MATCH_TYPE),),
        is_v3=True,
        is_experimental=True,
        output_matchtypes=("switch",),
    )

    def wanted(self, node: Lowering) -> frozenset[str]:
        return frozenset({_chosen(node)})

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return (node.inputs[_chosen(node)],)


def _chosen(node: Lowering) -> str:
    return "on_true" if node.constant("switch") else "on_false"


NODES: Final[tuple[type[NodeClass], ...]] = (ComfySwitchNode,)
