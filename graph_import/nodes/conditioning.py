"""Node classes that make conditionings."""

from __future__ import annotations

from ..types import CLIP, CONDITIONING
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import NodeSchema, ports, socket, text


class CLIPTextEncode(NodeClass):
    """Words to a conditioning."""

    schema = NodeSchema(
        class_type="CLIPTextEncode",
        display_name="CLIP Text Encode (Prompt)",
        category="conditioning",
        inputs=(text("text", multiline=True, dynamicPrompts=True), socket("clip", CLIP)),
        outputs=ports(CONDITIONING=CONDITIONING),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("text_encode", {"text": node.inputs["text"]}, model=node.model("clip"))
