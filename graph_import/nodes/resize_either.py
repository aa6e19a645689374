"""The node class that resizes pictures or masks in one of several ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..ir import Port
from ..types import DYNAMIC_COMBO, MATCH_TYPE
from .base import NodeClass
from .image import CROPS, UPSCALE_METHODS
from .lowering import Lowering, Value
from .schema import InputSpec, NodeSchema, choice, integer, number, socket


def _side(name: str) -> InputSpec:
    return integer(name, default=512, min=0, max=16384, step=1)


_CROP: Final = choice("crop", CROPS, default="center")
WAYS: Final[Mapping[str, tuple[InputSpec, ...]]] = {
    "scale by multiplier": (number("multiplier", default=1.0, min=0.01, max=8.0, step=0.01),),
    "scale dimensions": (_side("width"), _side("height"), _CROP),
    "scale longer dimension": (_side("longer_size"),),
    "scale shorter dimension": (_side("shorter_size"),),
    "scale width": (_side("width"),),
    "scale height": (_side("height"),),
    "scale total pixels": (number("megapixels", default=1.0, min=0.01, max=16.0, step=0.01),),
    "match size": (socket("match", "IMAGE,MASK"), _CROP),
}


def _shown(spec: InputSpec) -> list[object]:
    options = dict(spec.options or {})
    if spec.choices is not None and isinstance(spec.choices, tuple):
        options["options"] = list(spec.choices)
    return [spec.type, options]


def _resize_type() -> InputSpec:
    options = [
        {"key": way, "inputs": {"required": {spec.name: _shown(spec) for spec in inputs}}}
        for way, inputs in WAYS.items()
    ]
    nested = {spec.name: spec for inputs in WAYS.values() for spec in inputs}
    return InputSpec(
        name="resize_type",
        type=DYNAMIC_COMBO,
        options={"options": options},
        nested=tuple(nested.values()),
    )


class ResizeImageMaskNode(NodeClass):
    """Resizes pictures or masks; which further inputs there are depends on the way chosen."""

    schema = NodeSchema(
        class_type="ResizeImageMaskNode",
        display_name="Resize Image/Mask",
        category="transform",
        python_module="comfy_extras.nodes_post_processing",
        inputs=(
            InputSpec(
                name="input",
                type=MATCH_TYPE,
                options={"template": {"template_id": "input_type", "allowed_types": "IMAGE,MASK"}},
            ),
            _resize_type(),
            choice("scale_method", UPSCALE_METHODS, default="area"),
        ),
        outputs=(Port(name="resized", type=MATCH_TYPE),),
        is_v3=True,
        output_matchtypes=("input_type",),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        node.require("resize_type")
        way = node.text("resize_type")
        if way not in WAYS:
            raise node.refusal("resize_type", f"there is no way {way!r}")
        args = {name: node.inputs[name] for name in ("input", "scale_method")}
        for spec in WAYS[way]:
            name = f"resize_type.{spec.name}"
            if name not in node.inputs:
                raise node.refusal(name, "it is missing")
            args[spec.name] = node.inputs[name]
        return node.add("resize_image_mask_node", {**args, "resize_type": way})


NODES: Final[tuple[type[NodeClass], ...]] = (ResizeImageMaskNode,)
