"""Node classes that mask a part of a picture, to be sampled anew."""

from __future__ import annotations

from ..handles import MASK_BY_SIGMA
from ..types import CONDITIONING, FLOAT, IMAGE, LATENT, MASK, MODEL, VAE
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import InputSpec, NodeSchema, integer, ports, socket, switch


class SetLatentNoiseMask(NodeClass):
    """Samples a latent only where a mask says."""

    schema = NodeSchema(
        class_type="SetLatentNoiseMask",
        display_name="Set Latent Noise Mask",
        category="latent/inpaint",
        inputs=(socket("samples", LATENT, is_bare=True), socket("mask", MASK, is_bare=True)),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("set_noise_mask", node.inputs)


class DifferentialDiffusion(NodeClass):
    """Noise masks say when sampling reaches a place: the whiter, the sooner."""

    schema = NodeSchema(
        class_type="DifferentialDiffusion",
        display_name="Differential Diffusion",
        category="_for_testing",
        python_module="comfy_extras.nodes_differential_diffusion",
        inputs=(
            socket("model", MODEL),
            InputSpec(
                name="strength",
                type=FLOAT,
                options={"default": 1.0, "min": 0.0, "max": 1.0, "step": 0.01},
                is_required=False,
            ),
        ),
        outputs=ports(MODEL=MODEL),
        is_v3=True,
        is_experimental=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        strength = node.number("strength") if "strength" in node.inputs else 1.0
        handle = node.handle("model")
        return (handle.on(handle.ref.with_option(MASK_BY_SIGMA, repr(strength))),)


class VAEEncodeForInpaint(NodeClass):
    """Picture to latent, grey under the mask, with the grown mask on it."""

    schema = NodeSchema(
        class_type="VAEEncodeForInpaint",
        display_name="VAE Encode (for Inpainting)",
        category="latent/inpaint",
        inputs=(
            socket("pixels", IMAGE, is_bare=True),
            socket("vae", VAE, is_bare=True),
            socket("mask", MASK, is_bare=True),
            integer("grow_mask_by", default=6, min=0, max=64, step=1),
        ),
        outputs=ports(LATENT=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        args = {name: node.inputs[name] for name in ("pixels", "mask", "grow_mask_by")}
        return node.add("vae_encode_inpaint", args, model=node.model("vae"))


class InpaintModelConditioning(NodeClass):
    """The masked picture for a denoiser that was trained to complete pictures."""

    schema = NodeSchema(
        class_type="InpaintModelConditioning",
        display_name="InpaintModelConditioning",
        category="conditioning/inpaint",
        inputs=(
            socket("positive", CONDITIONING, is_bare=True),
            socket("negative", CONDITIONING, is_bare=True),
            socket("vae", VAE, is_bare=True),
            socket("pixels", IMAGE, is_bare=True),
            socket("mask", MASK, is_bare=True),
            switch("noise_mask", default=True),
        ),
        outputs=ports(positive=CONDITIONING, negative=CONDITIONING, latent=LATENT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        names = ("positive", "negative", "pixels", "mask", "noise_mask")
        args = {name: node.inputs[name] for name in names}
        positive, negative, latent = node.add("inpaint_conditioning", args, model=node.model("vae"))
        return (
            node.steering("positive").on(positive),
            node.steering("negative").on(negative),
            latent,
        )
