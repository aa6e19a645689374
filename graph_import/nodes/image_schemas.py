"""The node classes that change pictures and need no model, as rows of a table."""

from __future__ import annotations

from typing import Final

from ..types import IMAGE, MASK
from .image_rows import MAX_SEED, optional, row, side, sides
from .plain import plain
from .schema import NodeSchema, choice, growing, integer, number, ports, socket
from .schema import switch as boolean

PORTER_DUFF: Final = (
    "ADD", "CLEAR", "DARKEN", "DST", "DST_ATOP", "DST_IN", "DST_OUT", "DST_OVER", "LIGHTEN",
    "MULTIPLY", "OVERLAY", "SCREEN", "SRC", "SRC_ATOP", "SRC_IN", "SRC_OUT", "SRC_OVER", "XOR",
)  # fmt: skip
_PLACE: Final = sides("x", "y", default=0, low=0)
_SIZE: Final = sides("width", "height")
_IMAGE: Final = socket("image", IMAGE)
_MASK: Final = socket("mask", MASK)

IMAGES: Final = (
    row(
        "BatchImagesNode",
        "post_processing",
        "image",
        (growing("images", _IMAGE, min=2, max=50),),
        "Batch Images",
    ),
    row(
        "Canny",
        "canny",
        "image/preprocessors",
        (
            _IMAGE,
            number("low_threshold", default=0.4, min=0.01, max=0.99, step=0.01),
            number("high_threshold", default=0.8, min=0.01, max=0.99, step=0.01),
        ),
    ),
    row(
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
    row(
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
    row(
        "ImageBlur",
        "post_processing",
        "image/postprocessing",
        (
            _IMAGE,
            integer("blur_radius", default=1, min=1, max=31, step=1),
            number("sigma", default=1.0, min=0.1, max=10.0, step=0.1),
        ),
    ),
    row(
        "ImageCompositeMasked",
        "mask",
        "image",
        (
            socket("destination", IMAGE),
            socket("source", IMAGE),
            *_PLACE,
            boolean("resize_source", default=False),
            optional(_MASK),
        ),
    ),
    row("ImageCrop", "images", "image/transform", (_IMAGE, *_SIZE, *_PLACE), "Image Crop"),
    row(
        "ImageFlip",
        "images",
        "image/transform",
        (_IMAGE, choice("flip_method", ("x-axis: vertically", "y-axis: horizontally"))),
    ),
    row(
        "ImageFromBatch",
        "images",
        "image/batch",
        (
            _IMAGE,
            integer("batch_index", default=0, min=0, max=4095),
            integer("length", default=1, min=1, max=4096),
        ),
    ),
    row(
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
    row("ImageRGBToYUV", "morphology", "image/batch", (_IMAGE,), Y=IMAGE, U=IMAGE, V=IMAGE),
    row(
        "ImageYUVToRGB",
        "morphology",
        "image/batch",
        tuple(socket(name, IMAGE) for name in ("Y", "U", "V")),
    ),
    row(
        "ImageRotate",
        "images",
        "image/transform",
        (_IMAGE, choice("rotation", ("none", "90 degrees", "180 degrees", "270 degrees"))),
    ),
    row(
        "ImageScaleToMaxDimension",
        "images",
        "image/upscaling",
        (
            _IMAGE,
            choice(
                "upscale_method",
                ("area", "lanczos", "bilinear", "nearest-exact", "bilinear", "bicubic"),
            ),
            side("largest_size", 512),
        ),
    ),
    row(
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
    row(
        "ImageStitch",
        "images",
        "image/transform",
        (
            socket("image1", IMAGE),
            choice("direction", ("right", "down", "left", "up"), default="right"),
            boolean("match_image_size", default=True),
            integer("spacing_width", default=0, min=0, max=1024, step=2),
            choice("spacing_color", ("white", "black", "red", "green", "blue"), default="white"),
            optional(socket("image2", IMAGE)),
        ),
        "Image Stitch",
    ),
    row(
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
    row(
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
    row(
        "RepeatImageBatch",
        "images",
        "image/batch",
        (_IMAGE, integer("amount", default=1, min=1, max=4096)),
    ),
    row(
        "ResizeAndPadImage",
        "images",
        "image/transform",
        (
            _IMAGE,
            *sides("target_width", "target_height"),
            choice("padding_color", ("white", "black")),
            choice("interpolation", ("area", "bicubic", "nearest-exact", "bilinear", "lanczos")),
        ),
    ),
    row("FluxKontextImageScale", "flux", "advanced/conditioning/flux", (_IMAGE,)),
)
