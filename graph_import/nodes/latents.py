"""Node classes that make and change latents without a model."""

from __future__ import annotations

from typing import Final

from ..ir import Port
from ..types import LATENT, MASK
from .base import NodeClass
from .lowering import Lowering, Value
from .schema import (
    InputSpec,
    NodeSchema,
    combo,
    growing,
    integer,
    number,
    ports,
    socket,
    switch,
)
from .tabled import Lower, choice, node_class
from .values import EdgeList, ListValue

MAX_SIDE: Final = 16384
_OUT: Final = ports(LATENT=LATENT)
_SAMPLES: Final = socket("samples", LATENT)
_TWO: Final = (socket("samples1", LATENT), socket("samples2", LATENT))


def _op(op: str, **fixed: int) -> Lower:
    return lambda node: node.add(op, {**node.inputs, **fixed})


def _new(
    class_type: str,
    lower: Lower,
    inputs: tuple[InputSpec, ...],
    doc: str,
    *,
    module: str = "latent",
    category: str = "latent/advanced",
    title: str | None = None,
    outputs: tuple[Port, ...] = _OUT,
    is_input_list: bool = False,
) -> type[NodeClass]:
    schema = NodeSchema(
        class_type=class_type,
        display_name=title,
        category=category,
        python_module=f"comfy_extras.nodes_{module}",
        inputs=inputs,
        outputs=outputs,
        is_v3=True,
        is_input_list=is_input_list,
        output_lists=(True,) if is_input_list else None,
    )
    return node_class(schema, lower, doc)


def _old(
    class_type: str,
    title: str,
    op: str,
    inputs: tuple[InputSpec, ...],
    doc: str,
    category: str = "latent/transform",
) -> type[NodeClass]:
    schema = NodeSchema(
        class_type=class_type,
        display_name=title,
        category=category,
        inputs=inputs,
        outputs=_OUT,
    )
    return node_class(schema, _op(op), doc)


def _empty(
    class_type: str,
    module: str,
    category: str,
    size: tuple[int, int, int, int],
    *,
    channels: int,
    unit: int,
    title: str | None = None,
    frames: tuple[str, int, int, int] | None = None,
) -> type[NodeClass]:
    """A latent of zeros.

    Args:
        size: default width and height, least side and step, in pixels.
        unit: pixels along one side of a latent unit.
        frames: name of the input that counts them, its default and minimum, frames per unit.
    """
    width, height, least, step = size
    fixed = {"channels": channels, "unit": unit}
    inputs = [
        integer("width", default=width, min=least, max=MAX_SIDE, step=step),
        integer("height", default=height, min=least, max=MAX_SIDE, step=step),
    ]
    if frames is not None:
        name, default, minimum, frame_step = frames
        inputs.append(integer(name, default=default, min=minimum, max=MAX_SIDE, step=frame_step))
        fixed["frame_step"] = frame_step
        if name == "layers":
            fixed["more_frames"] = 1
    inputs.append(integer("batch_size", default=1, min=1, max=4096))

    def lower(node: Lowering) -> tuple[Value, ...]:
        args = {("length" if name == "layers" else name): v for name, v in node.inputs.items()}
        return node.add("latent_zeros", {**args, **fixed})

    return _new(
        class_type,
        lower,
        tuple(inputs),
        "A latent of zeros.",
        module=module,
        category=category,
        title=title,
    )


def _cascade(node: Lowering) -> tuple[Value, ...]:
    """Zeros for both stages; how far stage C compresses is a number of the node."""
    size = {name: node.inputs[name] for name in ("width", "height", "batch_size")}
    unit = node.inputs["compression"]
    stage_c = node.add("latent_zeros", {**size, "channels": 16, "unit": unit}, part="stage-c")
    stage_b = node.add("latent_zeros", {**size, "channels": 4, "unit": 4}, part="stage-b")
    return (*stage_c, *stage_b)


def _batched(node: Lowering) -> tuple[Value, ...]:
    """All latents as one batch, joined one after another."""
    latents = list(node.inputs.values())
    if not latents:
        raise node.refusal("latents", "there are none")
    joined = latents[0]
    for index, latent in enumerate(latents[1:]):
        args = {"samples1": joined, "samples2": latent}
        (joined,) = node.add("latent_batch", args, part=f"join-{index}")
    return (joined,)


def _rebatched(node: Lowering) -> tuple[Value, ...]:
    """Batches of another size; how many there are, only a run can tell."""
    latents = {f"latents_{index}": v for index, v in enumerate(node.items("latents"))}
    sizes = node.items("batch_size")
    if not sizes:
        raise node.refusal("batch_size", "the list is empty")
    edge, length = node.add("latent_rebatch", {**latents, "batch_size": sizes[0]})
    return (ListValue(items=(EdgeList(edge=edge, length=length),)),)


def _side(name: str, default: int, least: int = 0) -> InputSpec:
    return integer(name, default=default, min=least, max=MAX_SIDE, step=8)


NODES: Final[tuple[type[NodeClass], ...]] = (
    _new("LatentAdd", _op("latent_add"), _TWO, "The sum of two latents."),
    _new("LatentSubtract", _op("latent_subtract"), _TWO, "The difference of two latents."),
    _new(
        "LatentMultiply",
        _op("latent_multiply"),
        (_SAMPLES, number("multiplier", default=1.0, min=-10.0, max=10.0, step=0.01)),
        "A latent times a number.",
    ),
    _new(
        "LatentInterpolate",
        _op("latent_interpolate"),
        (*_TWO, number("ratio", default=1.0, min=0.0, max=1.0, step=0.01)),
        "Between two latents: directions and lengths are mixed apart.",
    ),
    _new(
        "LatentConcat",
        _op("latent_concat"),
        (*_TWO, choice("dim", ("x", "-x", "y", "-y", "t", "-t"))),
        "Two latents side by side.",
    ),
    _new(
        "LatentCut",
        _op("latent_cut"),
        (
            _SAMPLES,
            choice("dim", ("x", "y", "t")),
            integer("index", default=0, min=-MAX_SIDE, max=MAX_SIDE, step=1),
            integer("amount", default=1, min=1, max=MAX_SIDE, step=1),
        ),
        "A slice of a latent.",
    ),
    _new(
        "LatentCutToBatch",
        _op("latent_cut_to_batch"),
        (
            _SAMPLES,
            choice("dim", ("t", "x", "y")),
            integer("slice_size", default=1, min=1, max=MAX_SIDE, step=1),
        ),
        "The slices of a latent as a batch.",
    ),
    _new(
        "LatentBatchSeedBehavior",
        _op("latent_seed_behavior"),
        (_SAMPLES, choice("seed_behavior", ("random", "fixed"), default="fixed")),
        "Whether the items of a batch start from the same noise.",
    ),
    _new(
        "LatentCompositeMasked",
        _op("latent_composite_masked"),
        (
            socket("destination", LATENT),
            socket("source", LATENT),
            _side("x", 0),
            _side("y", 0),
            switch("resize_source", default=False),
            InputSpec(name="mask", type=MASK, options={}, is_required=False),
        ),
        "One latent laid onto another, as a mask says.",
        module="mask",
        category="latent",
    ),
    _new(
        "ReplaceVideoLatentFrames",
        _op("latent_replace_frames"),
        (
            socket("destination", LATENT),
            integer("index", default=0, min=-MAX_SIDE, max=MAX_SIDE, step=1),
            InputSpec(name="source", type=LATENT, options={}, is_required=False),
        ),
        "Frames of one video put into another.",
        category="latent/batch",
    ),
    _new(
        "TrimVideoLatent",
        _op("latent_trim"),
        (_SAMPLES, integer("trim_amount", default=0, min=0, max=99999)),
        "A video without its first frames.",
        module="wan",
        category="latent/video",
    ),
    _new(
        "BatchLatentsNode",
        _batched,
        (growing("latents", socket("latent", LATENT), min=2, max=50),),
        "Latents as one batch.",
        module="post_processing",
        category="latent",
        title="Batch Latents",
    ),
    _new(
        "RebatchLatents",
        _rebatched,
        (socket("latents", LATENT), integer("batch_size", default=1, min=1, max=4096)),
        "The items of all latents in batches of one size.",
        module="rebatch",
        category="latent/batch",
        title="Rebatch Latents",
        is_input_list=True,
    ),
    _old(
        "LatentBlend",
        "Latent Blend",
        "latent_blend",
        (
            socket("samples1", LATENT, is_bare=True),
            socket("samples2", LATENT, is_bare=True),
            number("blend_factor", default=0.5, min=0, max=1, step=0.01),
        ),
        "Two latents mixed.",
        category="_for_testing",
    ),
    _old(
        "LatentCrop",
        "Crop Latent",
        "latent_crop",
        (
            socket("samples", LATENT, is_bare=True),
            _side("width", 512, 64),
            _side("height", 512, 64),
            _side("x", 0),
            _side("y", 0),
        ),
        "A rectangle of a latent.",
    ),
    _old(
        "LatentFlip",
        "Flip Latent",
        "latent_flip",
        (
            socket("samples", LATENT, is_bare=True),
            combo("flip_method", ("x-axis: vertically", "y-axis: horizontally"), None),
        ),
        "A latent mirrored.",
    ),
    _old(
        "LatentRotate",
        "Rotate Latent",
        "latent_rotate",
        (
            socket("samples", LATENT, is_bare=True),
            combo("rotation", ("none", "90 degrees", "180 degrees", "270 degrees"), None),
        ),
        "A latent turned clockwise.",
    ),
    _empty("EmptySD3LatentImage", "sd3", "latent/sd3", (1024, 1024, 16, 16), channels=16, unit=8),
    _empty(
        "EmptyFlux2LatentImage",
        "flux",
        "latent",
        (1024, 1024, 16, 16),
        channels=128,
        unit=16,
        title="Empty Flux 2 Latent",
    ),
    _empty(
        "EmptyHunyuanImageLatent", "hunyuan", "latent", (2048, 2048, 64, 32), channels=64, unit=32
    ),
    _empty(
        "EmptyChromaRadianceLatentImage",
        "chroma_radiance",
        "latent/chroma_radiance",
        (1024, 1024, 16, 16),
        channels=3,
        unit=1,
    ),
    _empty(
        "EmptyCosmosLatentVideo",
        "cosmos",
        "latent/video",
        (1280, 704, 16, 16),
        channels=16,
        unit=8,
        frames=("length", 121, 1, 8),
    ),
    _empty(
        "EmptyHunyuanLatentVideo",
        "hunyuan",
        "latent/video",
        (848, 480, 16, 16),
        channels=16,
        unit=8,
        title="Empty HunyuanVideo 1.0 Latent",
        frames=("length", 25, 1, 4),
    ),
    _empty(
        "EmptyHunyuanVideo15Latent",
        "hunyuan",
        "latent/video",
        (848, 480, 16, 16),
        channels=32,
        unit=16,
        title="Empty HunyuanVideo 1.5 Latent",
        frames=("length", 25, 1, 4),
    ),
    _empty(
        "EmptyLTXVLatentVideo",
        "lt",
        "latent/video/ltxv",
        (768, 512, 64, 32),
        channels=128,
        unit=32,
        frames=("length", 97, 1, 8),
    ),
    _empty(
        "EmptyMochiLatentVideo",
        "mochi",
        "latent/video",
        (848, 480, 16, 16),
        channels=12,
        unit=8,
        frames=("length", 25, 7, 6),
    ),
    _empty(
        "EmptyQwenImageLayeredLatentImage",
        "qwen",
        "latent/qwen",
        (640, 640, 16, 16),
        channels=16,
        unit=8,
        title="Empty Qwen Image Layered Latent",
        frames=("layers", 3, 0, 1),
    ),
    _new(
        "StableCascade_EmptyLatentImage",
        _cascade,
        (
            integer("width", default=1024, min=256, max=MAX_SIDE, step=8),
            integer("height", default=1024, min=256, max=MAX_SIDE, step=8),
            integer("compression", default=42, min=4, max=128, step=1),
            integer("batch_size", default=1, min=1, max=4096),
        ),
        "Latents of zeros for both stages.",
        module="stable_cascade",
        category="latent/stable_cascade",
        outputs=ports(stage_c=LATENT, stage_b=LATENT),
    ),
)
