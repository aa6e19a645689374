"""Node classes that join the latents of a video and its sound, and take them apart."""

from __future__ import annotations

from typing import Final

from ..types import LATENT
from .base import NodeClass
from .schema import NodeSchema, ports, socket
from .tabled import node_class

_CATEGORY: Final = "latent/video/ltxv"
_MODULE: Final = "comfy_extras.nodes_lt"

NODES: Final[tuple[type[NodeClass], ...]] = (
    node_class(
        NodeSchema(
            class_type="LTXVConcatAVLatent",
            display_name=None,
            category=_CATEGORY,
            python_module=_MODULE,
            inputs=(socket("video_latent", LATENT), socket("audio_latent", LATENT)),
            outputs=ports(latent=LATENT),
            is_v3=True,
        ),
        lambda node: node.add("av_latent_join", node.inputs),
        "A video and its sound as one latent.",
    ),
    node_class(
        NodeSchema(
            class_type="LTXVSeparateAVLatent",
            display_name=None,
            category=_CATEGORY,
            python_module=_MODULE,
            inputs=(socket("av_latent", LATENT),),
            outputs=ports(video_latent=LATENT, audio_latent=LATENT),
            is_v3=True,
        ),
        lambda node: node.add("av_latent_separate", node.inputs),
        "The video and the sound of one latent.",
    ),
)
