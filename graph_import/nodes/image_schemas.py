"""The node classes that change pictures and masks and need no model, as rows of a table."""

from __future__ import annotations

from typing import Final

import msgspec

from ..types import IMAGE, MASK, STRING
from .plain import PlainNode, plain
from .schema import InputSpec, NodeSchema, choice, growing, integer, number, ports, socket, text
from .schema import switch as boolean

PORTER_DUFF: Final = (
    "ADD", "CLEAR", "DARKEN", "DST", "DST_ATOP", "DST_IN", "DST_OUT", "DST_OVER", "LIGHTEN",
    "MULTIPLY", "OVERLAY", "SCREEN", "SRC", "SRC_ATOP", "SRC_IN", "SRC_OUT", "SRC_OVER", "XOR",
)  # fmt: skip
MAX_SIDE: Final = 16384
MAX_SEED: Final = 0xFFFFFFFFFFFFFFFF


def _row(
    class_type: str,
    module: str,
    category: str,
    inputs: tuple[InputSpec, ...],
    display_name: str | None = None,
    **outputs: str,
) -> PlainNode:
    """A row; the only output is IMAGE where none is named."""
    schema = NodeSchema(
        class_type=class_type,
        display_name=display_name,
        category=category,
        python_module=f"comfy_extras.nodes_{module}",
        inputs=inputs,
        outputs=ports(**(outputs or {"IMAGE": IMAGE})),
        is_v3=True,
        is_experimental=module == "dataset",
    )
    return plain(schema)


def _side(name: str, default: int, low: int = 0) -> InputSpec:
    """Pixels."""
    return integer(name, default=default, min=low, max=MAX_SIDE, step=1)


def _sides(*names: str, default: int = 512, low: int = 1) -> tuple[InputSpec, ...]:
    return tuple(_side(name, default, low) for name in names)


def _optional(spec: InputSpec) -> InputSpec:
    return InputSpec(name=spec.name, type=spec.type, options=spec.options, is_required=False)


_PLACE: Final = _sides("x", "y", default=0, low=0)
_SIZE: Final = _sides("width", "height")
_IMAGE: Final = socket("image", IMAGE)
_IMAGES: Final = socket("images", IMAGE)
_MASK: Final = socket("mask", MASK)

IMAGES: Final = (
    _row(
        "BatchImagesNode",
        "post_processing",
        "image",
        (growing("images", _IMAGE, min=2, max=50),),
        "Batch Images",
    ),
    _row(
        "Canny",
        "canny",
        "image/preprocessors",
        (
            _IMAGE,
            number("low_threshold", default=0.4, min=0.01, max=0.99, step=0.01),
            number("high_threshold", default=0.8, min=0.01, max=0.99, step=0.01),
        ),
    ),
    _row(
        "ImageAddNoise",
        "images",
        "image",
        (
            _IMAGE,
            integer("seed", default=0, min=0, max=MAX_SEED, control_after_generate=True),
            number("strength", default=0.5, min=0.0, max=1.0, step=0.01),
        ),
    ),
    plain(
        NodeSchema(
            class_type="ImageBatch",
            display_name="Batch Images",
            category="image",
            inputs=(socket("image1", IMAGE, is_bare=True), socket("image2", IMAGE, is_bare=True)),
            outputs=ports(IMAGE=IMAGE),
            is_deprecated=True,
        )
    ),
    _row(
        "ImageBlend",
        "post_processing",
        "image/postprocessing",
        (
            socket("image1", IMAGE),
            socket("image2", IMAGE),
            number("blend_factor", default=0.5, min=0.0, max=1.0, step=0.01),
            choice(
                "blend_mode",
                ("normal", "multiply", "screen", "overlay", "soft_light", "difference"),
            ),
        ),
    ),
    _row(
        "ImageBlur",
        "post_processing",
        "image/postprocessing",
        (
            _IMAGE,
            integer("blur_radius", default=1, min=1, max=31, step=1),
            number("sigma", default=1.0, min=0.1, max=10.0, step=0.1),
        ),
    ),
    _row(
        "ImageCompositeMasked",
        "mask",
        "image",
        (
            socket("destination", IMAGE),
            socket("source", IMAGE),
            *_PLACE,
            boolean("resize_source", default=False),
            _optional(_MASK),
        ),
    ),
    _row("ImageCrop", "images", "image/transform", (_IMAGE, *_SIZE, *_PLACE), "Image Crop"),
    _row(
        "ImageFlip",
        "images",
        "image/transform",
        (_IMAGE, choice("flip_method", ("x-axis: vertically", "y-axis: horizontally"))),
    ),
    _row(
        "ImageFromBatch",
        "images",
        "image/batch",
        (
            _IMAGE,
            integer("batch_index", default=0, min=0, max=4095),
            integer("length", default=1, min=1, max=4096),
        ),
    ),
    _row(
        "ImageQuantize",
        "post_processing",
        "image/postprocessing",
        (
            _IMAGE,
            integer("colors", default=256, min=1, max=256, step=1),
            choice(
                "dither", ("none", "floyd-steinberg", "bayer-2", "bayer-4", "bayer-8", "bayer-16")
            ),
        ),
    ),
    _row("ImageRGBToYUV", "morphology", "image/batch", (_IMAGE,), Y=IMAGE, U=IMAGE, V=IMAGE),
    _row(
        "ImageYUVToRGB",
        "morphology",
        "image/batch",
        tuple(socket(name, IMAGE) for name in ("Y", "U", "V")),
    ),
    _row(
        "ImageRotate",
        "images",
        "image/transform",
        (_IMAGE, choice("rotation", ("none", "90 degrees", "180 degrees", "270 degrees"))),
    ),
    _row(
        "ImageScaleToMaxDimension",
        "images",
        "image/upscaling",
        (
            _IMAGE,
            choice(
                "upscale_method",
                ("area", "lanczos", "bilinear", "nearest-exact", "bilinear", "bicubic"),
            ),
            _side("largest_size", 512),
        ),
    ),
    _row(
        "ImageSharpen",
        "post_processing",
        "image/postprocessing",
        (
            _IMAGE,
            integer("sharpen_radius", default=1, min=1, max=31, step=1),
            number("sigma", default=1.0, min=0.1, max=10.0, step=0.01),
            number("alpha", default=1.0, min=0.0, max=5.0, step=0.01),
        ),
    ),
    _row(
        "ImageStitch",
        "images",
        "image/transform",
        (
            socket("image1", IMAGE),
            choice("direction", ("right", "down", "left", "up"), default="right"),
            boolean("match_image_size", default=True),
            integer("spacing_width", default=0, min=0, max=1024, step=2),
            choice("spacing_color", ("white", "black", "red", "green", "blue"), default="white"),
            _optional(socket("image2", IMAGE)),
        ),
        "Image Stitch",
    ),
    _row(
        "Morphology",
        "morphology",
        "image/postprocessing",
        (
            _IMAGE,
            choice(
                "operation",
                ("erode", "dilate", "open", "close", "gradient", "bottom_hat", "top_hat"),
            ),
            integer("kernel_size", default=3, min=3, max=999, step=1),
        ),
        "ImageMorphology",
    ),
    _row(
        "PorterDuffImageComposite",
        "compositing",
        "mask/compositing",
        (
            socket("source", IMAGE),
            socket("source_alpha", MASK),
            socket("destination", IMAGE),
            socket("destination_alpha", MASK),
            choice("mode", PORTER_DUFF, default="DST"),
        ),
        "Porter-Duff Image Composite",
        IMAGE=IMAGE,
        MASK=MASK,
    ),
    _row(
        "RepeatImageBatch",
        "images",
        "image/batch",
        (_IMAGE, integer("amount", default=1, min=1, max=4096)),
    ),
    _row(
        "ResizeAndPadImage",
        "images",
        "image/transform",
        (
            _IMAGE,
            *_sides("target_width", "target_height"),
            choice("padding_color", ("white", "black")),
            choice("interpolation", ("area", "bicubic", "nearest-exact", "bilinear", "lanczos")),
        ),
    ),
    _row("FluxKontextImageScale", "flux", "advanced/conditioning/flux", (_IMAGE,)),
)

MASKS: Final = (
    _row(
        "BatchMasksNode",
        "post_processing",
        "mask",
        (growing("masks", _MASK, min=2, max=50),),
        "Batch Masks",
        MASK=MASK,
    ),
    _row("CropMask", "mask", "mask", (_MASK, *_PLACE, *_SIZE), MASK=MASK),
    _row(
        "FeatherMask",
        "mask",
        "mask",
        (_MASK, *_sides("left", "top", "right", "bottom", default=0, low=0)),
        MASK=MASK,
    ),
    _row(
        "GrowMask",
        "mask",
        "mask",
        (
            _MASK,
            integer("expand", default=0, min=-MAX_SIDE, max=MAX_SIDE, step=1),
            boolean("tapered_corners", default=True),
        ),
        "Grow Mask",
        MASK=MASK,
    ),
    _row(
        "ImageColorToMask",
        "mask",
        "mask",
        (_IMAGE, integer("color", default=0, min=0, max=0xFFFFFF, step=1, display="number")),
        MASK=MASK,
    ),
    _row(
        "ImageToMask",
        "mask",
        "mask",
        (_IMAGE, choice("channel", ("red", "green", "blue", "alpha"))),
        "Convert Image to Mask",
        MASK=MASK,
    ),
    _row("InvertMask", "mask", "mask", (_MASK,), MASK=MASK),
    _row(
        "JoinImageWithAlpha",
        "compositing",
        "mask/compositing",
        (_IMAGE, socket("alpha", MASK)),
        "Join Image with Alpha",
    ),
    _row(
        "SplitImageWithAlpha",
        "compositing",
        "mask/compositing",
        (_IMAGE,),
        "Split Image with Alpha",
        IMAGE=IMAGE,
        MASK=MASK,
    ),
    _row(
        "MaskComposite",
        "mask",
        "mask",
        (
            socket("destination", MASK),
            socket("source", MASK),
            *_PLACE,
            choice("operation", ("multiply", "add", "subtract", "and", "or", "xor")),
        ),
        MASK=MASK,
    ),
    _row("MaskToImage", "mask", "mask", (_MASK,), "Convert Mask to Image"),
    _row(
        "SolidMask",
        "mask",
        "mask",
        (number("value", default=1.0, min=0.0, max=1.0, step=0.01), *_SIZE),
        MASK=MASK,
    ),
    _row(
        "ThresholdMask",
        "mask",
        "mask",
        (_MASK, number("value", default=0.5, min=0.0, max=1.0, step=0.01)),
        MASK=MASK,
    ),
)
_CROP: Final = (
    integer("width", default=512, min=1, max=8192),
    integer("height", default=512, min=1, max=8192),
)
_FACTOR: Final = number("factor", default=1.0, min=0.0, max=2.0)

DATASETS: Final = tuple(
    _row(class_type, "dataset", "dataset/image", (_IMAGES, *inputs), name, images=IMAGE)
    for class_type, name, inputs in (
        ("AdjustBrightness", "Adjust Brightness", (_FACTOR,)),
        ("AdjustContrast", "Adjust Contrast", (_FACTOR,)),
        ("CenterCropImages", "Center Crop Images", _CROP),
        (
            "RandomCropImages",
            "Random Crop Images",
            (*_CROP, integer("seed", default=0, min=0, max=MAX_SEED)),
        ),
        (
            "NormalizeImages",
            "Normalize Images",
            (
                number("mean", default=0.5, min=0.0, max=1.0),
                number("std", default=0.5, min=0.001, max=1.0),
            ),
        ),
        (
            "ResizeImagesByLongerEdge",
            "Resize Images by Longer Edge",
            (integer("longer_edge", default=1024, min=1, max=8192),),
        ),
        (
            "ResizeImagesByShorterEdge",
            "Resize Images by Shorter Edge",
            (integer("shorter_edge", default=512, min=1, max=8192),),
        ),
    )
)
_SEED: Final = integer("seed", default=0, min=0, max=MAX_SEED)


def _list_row(
    class_type: str,
    display_name: str,
    *inputs: InputSpec,
    module: str = "dataset",
    category: str = "dataset/image",
    gives_lists: bool = True,
    **outputs: str,
) -> PlainNode:
    """A row of a class that gets all items of the lists on its inputs in one call."""
    row = _row(class_type, module, category, inputs, display_name, **outputs)
    lists = (gives_lists,) * len(row.schema.outputs)
    schema = msgspec.structs.replace(row.schema, is_input_list=True, output_lists=lists)
    return plain(schema)


LISTS: Final = (
    _list_row(
        "ImageDeduplication",
        "Image Deduplication",
        _IMAGES,
        number("similarity_threshold", default=0.95, min=0.0, max=1.0),
        images=IMAGE,
    ),
    _list_row(
        "ImageGrid",
        "Image Grid",
        _IMAGES,
        integer("columns", default=4, min=1, max=20),
        integer("cell_width", default=256, min=32, max=2048),
        integer("cell_height", default=256, min=32, max=2048),
        integer("padding", default=4, min=0, max=50),
        gives_lists=False,
        images=IMAGE,
    ),
    _list_row("MergeImageLists", "Merge Image Lists", _IMAGES, images=IMAGE),
    _list_row(
        "RebatchImages",
        "Rebatch Images",
        _IMAGES,
        integer("batch_size", default=1, min=1, max=4096),
        module="rebatch",
        category="image/batch",
    ),
    _list_row("ShuffleDataset", "Shuffle Image Dataset", _IMAGES, _SEED, images=IMAGE),
    _list_row(
        "ShuffleImageTextDataset",
        "Shuffle Image-Text Dataset",
        _IMAGES,
        text("texts", multiline=False),
        _SEED,
        images=IMAGE,
        texts=STRING,
    ),
)
