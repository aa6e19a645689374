"""Node classes of ControlNets: they load one, and put it on a conditioning with a hint picture.

What a ControlNet costs is paid where the conditioning is sampled with (`controls.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..catalog import Catalog
from ..families import has_latent_hints
from ..handles import ModelRef, Role
from ..ir import Edge
from ..types import CONDITIONING, CONTROL_NET, IMAGE, MODEL, VAE
from .base import NodeClass
from .loaders import check_part, part_handle
from .lowering import Constant, Control, Lowering, Steering, Value
from .schema import FileChoices, InputSpec, NodeSchema, combo, number, ports, socket
from .values import MARKER_DIGITS

CONTROLNETS: Final = FileChoices(kind="controlnet")
WEIGHT_DTYPE: Final = "float32"  # as ComfyUI holds them on a CPU

_FILE: Final = combo("control_net_name", CONTROLNETS, None)
STRENGTH: Final = number("strength", default=1.0, min=0.0, max=10.0, step=0.01)


class ControlNetLoader(NodeClass):
    """A ControlNet from its file."""

    schema = NodeSchema(
        class_type="ControlNetLoader",
        display_name="Load ControlNet Model",
        category="loaders",
        inputs=(_FILE,),
        outputs=ports(CONTROL_NET=CONTROL_NET),
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return check_part(literals, catalog, "control_net_name", CONTROLNETS.kind, Role.CONTROLNET)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        handle = part_handle(
            node, "control_net_name", CONTROLNETS.kind, Role.CONTROLNET, WEIGHT_DTYPE
        )
        return (handle,)


class DiffControlNetLoader(ControlNetLoader):
    """A ControlNet that may be stored as its difference from a denoiser; only whole ones load."""

    schema = NodeSchema(
        class_type="DiffControlNetLoader",
        display_name="Load ControlNet Model (diff)",
        category="loaders",
        inputs=(socket("model", MODEL, is_bare=True), _FILE),
        outputs=ports(CONTROL_NET=CONTROL_NET),
    )


class ControlNetApply(NodeClass):
    """A ControlNet on one conditioning, for the whole of the sampling.

    A sampler's negative side that has no ControlNet gets this one too.
    """

    schema = NodeSchema(
        class_type="ControlNetApply",
        display_name="Apply ControlNet (OLD)",
        category="conditioning/controlnet",
        inputs=(
            socket("conditioning", CONDITIONING, is_bare=True),
            socket("control_net", CONTROL_NET, is_bare=True),
            socket("image", IMAGE, is_bare=True),
            STRENGTH,
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
        is_deprecated=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        if is_off(node):
            return (node.steering("conditioning"),)
        control = control_on(node, 0.0, 1.0, is_for_both_sides=True)
        return (steered(node, node.steering("conditioning"), control, part=None),)


class ControlNetApplyAdvanced(NodeClass):
    """A ControlNet on both sides of the guidance, for a part of the sampling.

    ControlNets whose hint is a latent, SD3's, encode it with `vae`.
    """

    schema = NodeSchema(
        class_type="ControlNetApplyAdvanced",
        display_name="Apply ControlNet",
        category="conditioning/controlnet",
        inputs=(
            socket("positive", CONDITIONING, is_bare=True),
            socket("negative", CONDITIONING, is_bare=True),
            socket("control_net", CONTROL_NET, is_bare=True),
            socket("image", IMAGE, is_bare=True),
            STRENGTH,
            number("start_percent", default=0.0, min=0.0, max=1.0, step=0.001),
            number("end_percent", default=1.0, min=0.0, max=1.0, step=0.001),
            InputSpec(name="vae", type=VAE, is_required=False),
        ),
        outputs=ports(positive=CONDITIONING, negative=CONDITIONING),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        node.require("start_percent", "end_percent")
        sides = ("positive", "negative")
        if is_off(node):
            return tuple(node.steering(side) for side in sides)
        start, end = node.number("start_percent"), node.number("end_percent")
        control = control_on(node, start, end)
        return tuple(steered(node, node.steering(side), control, part=side) for side in sides)


class ControlNetApplySD3(ControlNetApplyAdvanced):
    """The same with a VAE that must be there; from before one node did for all families."""

    schema = NodeSchema(
        class_type="ControlNetApplySD3",
        display_name="Apply Controlnet with VAE",
        category="conditioning/controlnet",
        inputs=(
            socket("positive", CONDITIONING),
            socket("negative", CONDITIONING),
            socket("control_net", CONTROL_NET),
            socket("vae", VAE),
            socket("image", IMAGE),
            STRENGTH,
            number("start_percent", default=0.0, min=0.0, max=1.0, step=0.001),
            number("end_percent", default=1.0, min=0.0, max=1.0, step=0.001),
        ),
        outputs=ports(positive=CONDITIONING, negative=CONDITIONING),
        python_module="comfy_extras.nodes_sd3",
        is_v3=True,
        is_deprecated=True,
    )


def is_off(node: Lowering) -> bool:
    """Whether the strength is known from the start to be 0."""
    return isinstance(node.inputs["strength"], Constant) and node.number("strength") == 0.0


def control_on(
    node: Lowering, start_percent: float, end_percent: float, *, is_for_both_sides: bool = False
) -> Control:
    model, hint, strength = node.model("control_net"), node.inputs["image"], node.inputs["strength"]
    vae = _hint_vae(node, model)
    if not isinstance(hint, Edge):
        raise node.refusal("image", "a picture was expected")
    if isinstance(strength, Constant):
        strength = Constant(value=node.number("strength"))
    elif not isinstance(strength, Edge):
        raise node.refusal("strength", "a number was expected")
    content = (
        model,
        _identity(node, hint),
        _identity(node, strength),
        start_percent,
        end_percent,
        is_for_both_sides,
        vae,
    )
    return Control(
        marker=hashlib.sha256(msgspec.msgpack.encode(content)).hexdigest()[:MARKER_DIGITS],
        model=model,
        hint=hint,
        strength=strength,
        start_percent=start_percent,
        end_percent=end_percent,
        is_for_both_sides=is_for_both_sides,
        vae=vae,
    )


def _hint_vae(node: Lowering, model: ModelRef) -> ModelRef | None:
    """What encodes the hint; None where it stays a picture. Raises: InputRefused: none is there."""
    if not has_latent_hints(model.key.family):
        return None
    if node.inputs.get("vae") is None:
        reason = f"{model.key.label()} looks at latents: give ControlNetApplyAdvanced a VAE"
        raise node.refusal("control_net", reason)
    return node.model("vae")


def _identity(node: Lowering, value: Constant | Edge) -> object:
    """What a value is, whatever the nodes are called that give it."""
    if isinstance(value, Constant):
        return value.value
    return node.builder.signature(value.source), value.port


def steered(node: Lowering, given: Steering, control: Control, part: str | None) -> Steering:
    """A conditioning, its entries marked as steered by one more ControlNet."""
    (edge,) = node.add("cond_control", {"conditioning": given, "marker": control.marker}, part=part)
    return msgspec.structs.replace(given, edge=edge, controls=(*given.controls, control))
