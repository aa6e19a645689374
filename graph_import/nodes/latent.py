"""Node classes that make latents, and turn them into pictures and back."""

from __future__ import annotations

from ..types import IMAGE, LATENT, VAE
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import NodeSchema, integer, ports, socket


class EmptyLatentImage(NodeClass):
    """A latent of zeros."""

    schema = NodeSchema(
        class_type="EmptyLatentImage",
        display_name="Empty Latent Image",
        category="latent",
        inputs=(
            integer("width", default=512, min=16, max=16384, step=8),
            integer("height", default=512, min=16, max=16384, step=8),
            integer("batch_size", default=1, min=1, max=4096),
        ),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("empty_latent", node.inputs)


class VAEDecode(NodeClass):
    """Latent to picture."""

    schema = NodeSchema(
        class_type="VAEDecode",
        display_name="VAE Decode",
        category="latent",
        inputs=(socket("samples", LATENT), socket("vae", VAE)),
        outputs=ports(IMAGE=IMAGE),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("vae_decode", {"samples": node.inputs["samples"]}, model=node.model("vae"))


class VAEEncode(NodeClass):
    """Picture to latent."""

    schema = NodeSchema(
        class_type="VAEEncode",
        display_name="VAE Encode",
        category="latent",
        inputs=(socket("pixels", IMAGE, is_bare=True), socket("vae", VAE, is_bare=True)),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("vae_encode", {"pixels": node.inputs["pixels"]}, model=node.model("vae"))
