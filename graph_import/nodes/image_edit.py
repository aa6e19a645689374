"""Node classes that change pictures: scale, pad, invert, upscale by a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..catalog import Catalog
from ..errors import ModelFileProblem
from ..handles import ModelKey, ModelRef, Role
from ..types import COMBO, IMAGE, MASK, UPSCALE_MODEL
from .base import NodeClass
from .image import UPSCALE_METHODS
from .lowering import Handle, Lowering, Value
from .schema import FileChoices, InputSpec, NodeSchema, combo, integer, number, ports, socket

_EXTRAS = "comfy_extras"


def _new_combo(name: str, choices: tuple[object, ...] | FileChoices) -> InputSpec:
    """A choice in the form of the newer classes."""
    options = {"multiselect": False}
    return InputSpec(name=name, type=COMBO, options=options, choices=choices, is_listed=False)


class ImageScaleBy(NodeClass):
    """Resamples pictures by a factor."""

    schema = NodeSchema(
        class_type="ImageScaleBy",
        display_name="Upscale Image By",
        category="image/upscaling",
        inputs=(
            socket("image", IMAGE, is_bare=True),
            combo("upscale_method", UPSCALE_METHODS, None),
            number("scale_by", default=1.0, min=0.01, max=8.0, step=0.01),
        ),
        outputs=ports(IMAGE=IMAGE),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("image_scale_by", node.inputs)


class ImageScaleToTotalPixels(NodeClass):
    """Resamples pictures to a number of pixels."""

    schema = NodeSchema(
        class_type="ImageScaleToTotalPixels",
        display_name=None,
        category="image/upscaling",
        python_module=f"{_EXTRAS}.nodes_post_processing",
        inputs=(
            socket("image", IMAGE),
            _new_combo("upscale_method", UPSCALE_METHODS),
            number("megapixels", default=1.0, min=0.01, max=16.0, step=0.01),
            integer("resolution_steps", default=1, min=1, max=256),
        ),
        outputs=ports(IMAGE=IMAGE),
        is_v3=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("image_scale_to_total_pixels", node.inputs)


class ImagePadForOutpaint(NodeClass):
    """Grey borders around pictures, and a mask of them."""

    schema = NodeSchema(
        class_type="ImagePadForOutpaint",
        display_name="Pad Image for Outpainting",
        category="image",
        inputs=(
            socket("image", IMAGE, is_bare=True),
            *(
                integer(side, default=0, min=0, max=16384, step=8)
                for side in ("left", "top", "right", "bottom")
            ),
            integer("feathering", default=40, min=0, max=16384, step=1),
        ),
        outputs=ports(IMAGE=IMAGE, MASK=MASK),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("image_pad", node.inputs)


class ImageInvert(NodeClass):
    """Negatives."""

    schema = NodeSchema(
        class_type="ImageInvert",
        display_name="Invert Image",
        category="image",
        inputs=(socket("image", IMAGE, is_bare=True),),
        outputs=ports(IMAGE=IMAGE),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("image_invert", node.inputs)


class UpscaleModelLoader(NodeClass):
    """A model that makes pictures larger; of which kind is found out when it is loaded."""

    schema = NodeSchema(
        class_type="UpscaleModelLoader",
        display_name="Load Upscale Model",
        category="loaders",
        python_module=f"{_EXTRAS}.nodes_upscale_model",
        inputs=(_new_combo("model_name", FileChoices(kind="upscale_models")),),
        outputs=ports(UPSCALE_MODEL=UPSCALE_MODEL),
        is_v3=True,
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        if "model_name" not in literals:
            return {}
        try:
            catalog.part("upscale_models", literals["model_name"])
        except ModelFileProblem as problem:
            return {"model_name": problem.message}
        return {}

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        try:
            info = node.catalog.part("upscale_models", node.text("model_name"))
        except ModelFileProblem as problem:
            raise node.refusal("model_name", problem.message) from problem
        key = ModelKey(role=Role.UPSCALER, family=info.family, file=info.file, dtype="float32")
        return (Handle(ref=ModelRef(key=key)),)


class ImageUpscaleWithModel(NodeClass):
    """Pictures made larger by a model."""

    schema = NodeSchema(
        class_type="ImageUpscaleWithModel",
        display_name="Upscale Image (using Model)",
        category="image/upscaling",
        python_module=f"{_EXTRAS}.nodes_upscale_model",
        inputs=(socket("upscale_model", UPSCALE_MODEL), socket("image", IMAGE)),
        outputs=ports(IMAGE=IMAGE),
        is_v3=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        model = node.model("upscale_model")
        return node.add("image_upscale", {"image": node.inputs["image"]}, model=model)
