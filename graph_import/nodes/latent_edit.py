"""Node classes that change latents: resize, compose, repeat, join, take from a batch."""

from __future__ import annotations

from typing import Final

from ..types import LATENT
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import NodeSchema, combo, integer, number, ports, socket

LATENT_METHODS: Final = ("nearest-exact", "bilinear", "area", "bicubic", "bislerp")
CROPS: Final = ("disabled", "center")
MAX_PIXELS: Final = 16384  # along one side


class LatentUpscale(NodeClass):
    """Resamples a latent to the size of a picture."""

    schema = NodeSchema(
        class_type="LatentUpscale",
        display_name="Upscale Latent",
        category="latent",
        inputs=(
            socket("samples", LATENT, is_bare=True),
            combo("upscale_method", LATENT_METHODS, None),
            integer("width", default=512, min=0, max=MAX_PIXELS, step=8),
            integer("height", default=512, min=0, max=MAX_PIXELS, step=8),
            combo("crop", CROPS, None),
        ),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("latent_upscale", node.inputs)


class LatentUpscaleBy(NodeClass):
    """Resamples a latent by a factor."""

    schema = NodeSchema(
        class_type="LatentUpscaleBy",
        display_name="Upscale Latent By",
        category="latent",
        inputs=(
            socket("samples", LATENT, is_bare=True),
            combo("upscale_method", LATENT_METHODS, None),
            number("scale_by", default=1.5, min=0.01, max=8.0, step=0.01),
        ),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("latent_upscale_by", node.inputs)


class LatentComposite(NodeClass):
    """Lays one latent onto another."""

    schema = NodeSchema(
        class_type="LatentComposite",
        display_name="Latent Composite",
        category="latent",
        inputs=(
            socket("samples_to", LATENT, is_bare=True),
            socket("samples_from", LATENT, is_bare=True),
            integer("x", default=0, min=0, max=MAX_PIXELS, step=8),
            integer("y", default=0, min=0, max=MAX_PIXELS, step=8),
            integer("feather", default=0, min=0, max=MAX_PIXELS, step=8),
        ),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("latent_composite", node.inputs)


class RepeatLatentBatch(NodeClass):
    """A batch several times over."""

    schema = NodeSchema(
        class_type="RepeatLatentBatch",
        display_name="Repeat Latent Batch",
        category="latent/batch",
        inputs=(
            socket("samples", LATENT, is_bare=True),
            integer("amount", default=1, min=1, max=64),
        ),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("latent_repeat", node.inputs)


class LatentBatch(NodeClass):
    """Two batches as one."""

    schema = NodeSchema(
        class_type="LatentBatch",
        display_name=None,
        category="latent/batch",
        python_module="comfy_extras.nodes_latent",
        inputs=(socket("samples1", LATENT), socket("samples2", LATENT)),
        outputs=ports(LATENT=LATENT),
        is_v3=True,
        is_deprecated=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("latent_batch", node.inputs)


class LatentFromBatch(NodeClass):
    """Some items of a batch."""

    schema = NodeSchema(
        class_type="LatentFromBatch",
        display_name="Latent From Batch",
        category="latent/batch",
        inputs=(
            socket("samples", LATENT, is_bare=True),
            integer("batch_index", default=0, min=0, max=63),
            integer("length", default=1, min=1, max=64),
        ),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("latent_from_batch", node.inputs)
