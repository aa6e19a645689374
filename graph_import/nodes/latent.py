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


# What the tiled nodes ask for beside the pictures; the last two are about videos.
_TILES = (
    integer("overlap", default=64, min=0, max=4096, step=32),
    integer("temporal_size", default=64, min=8, max=4096, step=4),
    integer("temporal_overlap", default=8, min=4, max=4096, step=4),
)


class VAEDecodeTiled(NodeClass):
    """Latent to picture, tile by tile: large pictures in little memory."""

    schema = NodeSchema(
        class_type="VAEDecodeTiled",
        display_name="VAE Decode (Tiled)",
        category="_for_testing",
        inputs=(
            socket("samples", LATENT, is_bare=True),
            socket("vae", VAE, is_bare=True),
            integer("tile_size", default=512, min=64, max=4096, step=32),
            *_TILES,
        ),
        outputs=ports(IMAGE=IMAGE),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        args = {name: node.inputs[name] for name in ("samples", "tile_size", "overlap")}
        return node.add("vae_decode_tiled", args, model=node.model("vae"))


class VAEEncodeTiled(NodeClass):
    """Picture to latent, tile by tile."""

    schema = NodeSchema(
        class_type="VAEEncodeTiled",
        display_name="VAE Encode (Tiled)",
        category="_for_testing",
        inputs=(
            socket("pixels", IMAGE, is_bare=True),
            socket("vae", VAE, is_bare=True),
            integer("tile_size", default=512, min=64, max=4096, step=64),
            *_TILES,
        ),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        args = {name: node.inputs[name] for name in ("pixels", "tile_size", "overlap")}
        return node.add("vae_encode_tiled", args, model=node.model("vae"))
