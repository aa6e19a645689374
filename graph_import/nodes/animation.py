"""Node classes that save pictures as one animated file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..catalog import Catalog
from ..types import IMAGE
from .base import NodeClass
from .image import SAVED_WITH, check_prefix
from .lowering import Lowering, Value
from .schema import InputSpec, NodeSchema, choice, integer, number, socket, switch, text

_COMMON: Final = (
    socket("images", IMAGE),
    text("filename_prefix", default="ComfyUI", multiline=False),
    number("fps", default=6.0, min=0.01, max=1000.0, step=0.01),
)


def _schema(class_type: str, *inputs: InputSpec) -> NodeSchema:
    return NodeSchema(
        class_type=class_type,
        display_name=None,
        category="image/animation",
        python_module="comfy_extras.nodes_images",
        inputs=(*_COMMON, *inputs),
        outputs=(),
        hidden=SAVED_WITH,
        is_output_node=True,
        is_v3=True,
    )


class SaveAnimatedWEBP(NodeClass):
    """Writes a WebP to the output folder, a frame per picture."""

    schema = _schema(
        "SaveAnimatedWEBP",
        switch("lossless", default=True),
        integer("quality", default=80, min=0, max=100),
        choice("method", ("default", "fastest", "slowest")),
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return check_prefix(literals)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("save_animated_webp", node.inputs, hidden=tuple(SAVED_WITH))


class SaveAnimatedPNG(NodeClass):
    """Writes an animated PNG to the output folder, a frame per picture."""

    schema = _schema("SaveAnimatedPNG", integer("compress_level", default=4, min=0, max=9))

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return check_prefix(literals)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("save_animated_png", node.inputs, hidden=tuple(SAVED_WITH))


NODES: Final[tuple[type[NodeClass], ...]] = (SaveAnimatedWEBP, SaveAnimatedPNG)
