"""Node classes that encode texts for families of several encoders, each with a text of its own.

They add what the family's denoisers were trained with beside the text: sizes, a score, a scale.
Source: SDXL (arXiv 2307.01952), section 2.2; ComfyUI 0.8.0, `nodes` in `prompts.json` of the
goldens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..catalog import Catalog
from ..handles import T5_MIN_LENGTH, T5_MIN_PADDING
from ..text_encoders import CLIP_G, CLIP_L, FAMILY_ENCODERS, T5XXL
from ..types import CLIP, CONDITIONING
from .base import NodeClass
from .conditioning import embedding_args, embedding_problems
from .lowering import Lowering, Value
from .ops_encoding import SIZES
from .schema import InputSpec, NodeSchema, choice, integer, number, ports, socket, text

MAX_SIZE: Final = 16384
_EXTRAS: Final = "comfy_extras.nodes_"


def _words(name: str) -> InputSpec:
    return text(name, multiline=True, dynamicPrompts=True)


def _size(name: str) -> InputSpec:
    default = 0 if name.startswith("crop") else 1024
    return integer(name, default=default, min=0, max=MAX_SIZE)


def _encoded(
    node: Lowering, texts: Mapping[str, str], *more: str, encoders: tuple[str, ...] = ()
) -> tuple[Value, ...]:
    """The node that encodes the texts.

    Args:
        texts: the op's arguments, and the inputs that they are.
        more: further inputs that are arguments under their own names.
        encoders: that the text encoder must be made for.
    """
    ref = node.model("clip")
    missing = [one for one in encoders if one not in FAMILY_ENCODERS.get(ref.key.family, ())]
    if missing:
        raise node.refusal("clip", f"{ref.key.family} has no {' and no '.join(missing)}")
    args = {
        **{arg: node.inputs[name] for arg, name in texts.items()},
        **{name: node.inputs[name] for name in more},
        **embedding_args(node, *texts.values()),
    }
    return node.add("text_encode_each", args, model=ref)


class CLIPTextEncodeSDXL(NodeClass):
    """A text for each of SDXL's encoders, with the sizes that it was trained to look at."""

    schema = NodeSchema(
        class_type="CLIPTextEncodeSDXL",
        display_name=None,
        category="advanced/conditioning",
        python_module=f"{_EXTRAS}clip_sdxl",
        inputs=(
            socket("clip", CLIP),
            *(_size(name) for name in SIZES),
            _words("text_g"),
            _words("text_l"),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
        is_v3=True,
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return embedding_problems(literals, catalog, "text_g", "text_l")

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        texts = {"text": "text_g", "text_clip_l": "text_l"}
        return _encoded(node, texts, *SIZES, encoders=(CLIP_L, CLIP_G))


class CLIPTextEncodeSDXLRefiner(NodeClass):
    """A text for SDXL's refiner, with the size and the score of beauty that it looks at."""

    schema = NodeSchema(
        class_type="CLIPTextEncodeSDXLRefiner",
        display_name=None,
        category="advanced/conditioning",
        python_module=f"{_EXTRAS}clip_sdxl",
        inputs=(
            number("ascore", default=6.0, min=0.0, max=1000.0, step=0.01),
            _size("width"),
            _size("height"),
            _words("text"),
            socket("clip", CLIP),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
        is_v3=True,
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return embedding_problems(literals, catalog, "text")

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return _encoded(node, {"text": "text"}, "ascore", "width", "height")


class CLIPTextEncodeSD3(NodeClass):
    """A text for each of SD3's encoders; an empty one is left out or encoded like any other."""

    schema = NodeSchema(
        class_type="CLIPTextEncodeSD3",
        display_name=None,
        category="advanced/conditioning",
        python_module=f"{_EXTRAS}sd3",
        inputs=(
            socket("clip", CLIP),
            *(_words(name) for name in (CLIP_L, CLIP_G, T5XXL)),
            choice("empty_padding", ("none", "empty_prompt")),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
        is_v3=True,
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return embedding_problems(literals, catalog, CLIP_L, CLIP_G, T5XXL)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        texts = {"text": CLIP_G, "text_clip_l": CLIP_L, "text_t5xxl": T5XXL}
        return _encoded(node, texts, "empty_padding", encoders=(CLIP_L, CLIP_G, T5XXL))


class CLIPTextEncodeFlux(NodeClass):
    """A text for each of Flux's encoders, with the scale of guidance that it was distilled with."""

    schema = NodeSchema(
        class_type="CLIPTextEncodeFlux",
        display_name=None,
        category="advanced/conditioning/flux",
        python_module=f"{_EXTRAS}flux",
        inputs=(
            socket("clip", CLIP),
            _words(CLIP_L),
            _words(T5XXL),
            number("guidance", default=3.5, min=0.0, max=100.0, step=0.1),
        ),
        outputs=ports(CONDITIONING=CONDITIONING),
        is_v3=True,
    )

    def validate(self, literals: Mapping[str, Any], catalog: Catalog) -> Mapping[str, str]:
        return embedding_problems(literals, catalog, CLIP_L, T5XXL)

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        texts = {"text": CLIP_L, "text_t5xxl": T5XXL}
        return _encoded(node, texts, "guidance", encoders=(CLIP_L, T5XXL))


class T5TokenizerOptions(NodeClass):
    """How far texts are filled up for T5, instead of as its family's denoisers were trained."""

    schema = NodeSchema(
        class_type="T5TokenizerOptions",
        display_name=None,
        category="_for_testing/conditioning",
        python_module=f"{_EXTRAS}cond",
        inputs=(
            socket("clip", CLIP),
            integer("min_padding", default=0, min=0, max=10000, step=1),
            integer("min_length", default=0, min=0, max=10000, step=1),
        ),
        outputs=ports(CLIP=CLIP),
        is_v3=True,
        is_experimental=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        encoder = node.handle("clip")
        ref = encoder.ref
        node.require("min_padding", "min_length")
        if T5XXL in FAMILY_ENCODERS.get(ref.key.family, ()):
            ref = ref.with_option(T5_MIN_PADDING, node.integer("min_padding"))
            ref = ref.with_option(T5_MIN_LENGTH, node.integer("min_length"))
        return (encoder.on(ref),)


NODES: Final = (
    CLIPTextEncodeSDXL,
    CLIPTextEncodeSDXLRefiner,
    CLIPTextEncodeSD3,
    CLIPTextEncodeFlux,
    T5TokenizerOptions,
)
