"""Node classes that read, change, measure and save pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..catalog import Catalog
from ..errors import ModelFileProblem
from ..ir import ParamValue
from ..types import COMBO, IMAGE, INT, MASK
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import FileChoices, InputSpec, NodeSchema, combo, integer, ports, socket, text

SAVED_WITH: Final = {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"}
UPSCALE_METHODS: Final = ("nearest-exact", "bilinear", "area", "bicubic", "lanczos")
CROPS: Final = ("disabled", "center")


class SaveImage(NodeClass):
    """Writes PNGs to the output folder."""

    schema = NodeSchema(
        class_type="SaveImage",
        display_name="Save Image",
        category="image",
        inputs=(socket("images", IMAGE), text("filename_prefix", default="ComfyUI")),
        outputs=(),
        hidden=SAVED_WITH,
        is_output_node=True,
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return check_prefix(literals)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("save_image", {**node.inputs, "folder": "output"}, hidden=tuple(SAVED_WITH))


class PreviewImage(NodeClass):
    """Writes PNGs to the temp folder."""

    schema = NodeSchema(
        class_type="PreviewImage",
        display_name="Preview Image",
        category="image",
        inputs=(socket("images", IMAGE, is_bare=True),),
        outputs=(),
        hidden=SAVED_WITH,
        is_output_node=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        # Names of previews start alike; the op sees to it that they differ.
        args = {**node.inputs, "filename_prefix": "ComfyUI_temp", "folder": "temp"}
        return node.add("save_image", args, hidden=tuple(SAVED_WITH))


class LoadImage(NodeClass):
    """A picture of the input folder (or of the one that its name is annotated with)."""

    schema = NodeSchema(
        class_type="LoadImage",
        display_name="Load Image",
        category="image",
        inputs=(combo("image", FileChoices(kind="input"), {"image_upload": True}),),
        outputs=ports(IMAGE=IMAGE, MASK=MASK),
    )
    own_checks = frozenset({"image"})  # a picture in a subfolder is in no list

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return _check_picture(literals, catalog)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("load_image", _picture(node))


class LoadImageOutput(NodeClass):
    """A picture of the output folder, by its annotated name: `a.png [output]`."""

    schema = NodeSchema(
        class_type="LoadImageOutput",
        display_name="Load Image (from Outputs)",
        category="image",
        inputs=(
            InputSpec(
                name="image",
                type=COMBO,
                options={
                    "image_upload": True,
                    "image_folder": "output",
                    "remote": {
                        "route": "/internal/files/output",
                        "refresh_button": True,
                        "control_after_refresh": "first",
                    },
                },
            ),
        ),
        outputs=ports(IMAGE=IMAGE, MASK=MASK),
        is_experimental=True,
    )
    own_checks = frozenset({"image"})  # clients fetch the list themselves

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return _check_picture(literals, catalog)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("load_image", _picture(node))


class LoadImageMask(NodeClass):
    """One channel of a picture as a mask."""

    schema = NodeSchema(
        class_type="LoadImageMask",
        display_name="Load Image (as Mask)",
        category="mask",
        inputs=(
            combo("image", FileChoices(kind="input"), {"image_upload": True}),
            combo("channel", ("alpha", "red", "green", "blue"), None),
        ),
        outputs=ports(MASK=MASK),
    )
    own_checks = frozenset({"image"})

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return _check_picture(literals, catalog)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        args = {**_picture(node), "channel": node.inputs["channel"]}
        return node.add("load_image_mask", args)


def check_prefix(literals: Mapping[str, Any]) -> Mapping[str, str]:
    """Why a `filename_prefix` may not be; one that comes over a link is judged by the op."""
    prefix = str(literals.get("filename_prefix", "")).replace("\\", "/")
    if prefix.startswith("/") or ".." in prefix.split("/"):
        return {"filename_prefix": "leaves the output folder"}
    return {}


def _check_picture(literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
    if "image" not in literals:
        return {}
    name = literals["image"]
    try:
        catalog.picture(name if isinstance(name, str) else str(name))
    except ModelFileProblem:
        return {"image": f"Invalid image file: {name}"}
    return {}


def _picture(node: Lowering) -> dict[str, Value | ParamValue]:
    """The identity of the picture that input `image` names, as params of an op."""
    name = node.text("image")
    try:
        file = node.catalog.picture(name)
    except ModelFileProblem as problem:
        raise node.refusal("image", f"Invalid image file: {name}") from problem
    return {"path": file.path, "size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns}


class ImageScale(NodeClass):
    """Resamples pictures to a size."""

    schema = NodeSchema(
        class_type="ImageScale",
        display_name="Upscale Image",
        category="image/upscaling",
        inputs=(
            socket("image", IMAGE, is_bare=True),
            combo("upscale_method", UPSCALE_METHODS, None),
            integer("width", default=512, min=0, max=16384, step=1),
            integer("height", default=512, min=0, max=16384, step=1),
            combo("crop", CROPS, None),
        ),
        outputs=ports(IMAGE=IMAGE),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("image_scale", node.inputs)


class GetImageSize(NodeClass):
    """Width, height and number of pictures."""

    schema = NodeSchema(
        class_type="GetImageSize",
        display_name="Get Image Size",
        category="image",
        python_module="comfy_extras.nodes_images",
        inputs=(socket("image", IMAGE),),
        outputs=ports(width=INT, height=INT, batch_size=INT),
        hidden={"unique_id": "UNIQUE_ID"},
        is_v3=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("image_size", node.inputs)


class EmptyImage(NodeClass):
    """Pictures of one colour."""

    schema = NodeSchema(
        class_type="EmptyImage",
        display_name="EmptyImage",
        category="image",
        inputs=(
            integer("width", default=512, min=1, max=16384, step=1),
            integer("height", default=512, min=1, max=16384, step=1),
            integer("batch_size", default=1, min=1, max=4096),
            integer("color", default=0, min=0, max=0xFFFFFF, step=1, display="color"),
        ),
        outputs=ports(IMAGE=IMAGE),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("empty_image", node.inputs)
