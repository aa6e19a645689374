"""Nodes with a text for each encoder: what they ask of the text encoder, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import Role
from nodeloom.graph_import.ir import Graph, Node, NodeId

from ..known_files import KnownFiles, identity, sd15
from ..prompts import Prompt, node, text_to_image

Import = Callable[[Prompt], Graph]
ENCODERS = {"l": ("clip_l",), "g": ("clip_g",), "t5": ("t5xxl",)}
SIZES = {
    "width": 1024,
    "height": 768,
    "crop_w": 8,
    "crop_h": 16,
    "target_width": 1024,
    "target_height": 1152,
}


@pytest.fixture
def files() -> KnownFiles:
    found = KnownFiles(files={("embeddings", "style.safetensors"): identity("style.safetensors")})
    for name, encoders in ENCODERS.items():
        info = sd15(name, frozenset({Role.TEXT_ENCODER}))
        found.parts["text_encoders", name] = msgspec.structs.replace(info, encoders=encoders)
    return found


def encoded(first: str, second: str, type_: str, class_type: str, **inputs: object) -> Prompt:
    """A prompt whose positive text is encoded by a node of this class."""
    prompt = text_to_image()
    prompt["c"] = node("DualCLIPLoader", clip_name1=first, clip_name2=second, type=type_)
    prompt["6"] = node(class_type, clip=["c", 0], **inputs)
    return prompt


def sdxl(**inputs: object) -> Prompt:
    words = {"text_g": "a dog", "text_l": "a cat"}
    return encoded("l", "g", "sdxl", "CLIPTextEncodeSDXL", **(SIZES | words | inputs))


def sd3(**inputs: object) -> Prompt:
    words = {"clip_l": "a cat", "clip_g": "a dog", "t5xxl": "a bird", "empty_padding": "none"}
    return encoded("l", "t5", "sd3", "CLIPTextEncodeSD3", **(words | inputs))


def flux(**inputs: object) -> Prompt:
    words = {"clip_l": "a cat", "t5xxl": "a bird", "guidance": 4}
    return encoded("l", "t5", "flux", "CLIPTextEncodeFlux", **(words | inputs))


def refiner(**inputs: object) -> Prompt:
    numbers = {"ascore": 6, "width": 1024, "height": 768, "text": "a cat"}
    return encoded("l", "g", "sdxl", "CLIPTextEncodeSDXLRefiner", **(numbers | inputs))


def text_node(graph: Graph) -> Node:
    return graph.by_id()[NodeId("6")]


@pytest.mark.parametrize(
    ("prompt", "params"),
    [
        (sdxl(), {"text": "a dog", "text_clip_l": "a cat", **SIZES}),
        (
            sd3(),
            {
                "text": "a dog",
                "text_clip_l": "a cat",
                "text_t5xxl": "a bird",
                "empty_padding": "none",
            },
        ),
        (flux(), {"text": "a cat", "text_t5xxl": "a bird", "guidance": 4.0}),
        (refiner(), {"text": "a cat", "ascore": 6.0, "width": 1024, "height": 768}),
    ],
    ids=["sdxl", "sd3", "flux", "refiner"],
)
def test_a_node_gives_each_encoder_its_text(
    imported: Import, prompt: Prompt, params: dict[str, object]
) -> None:
    made = text_node(imported(prompt))
    assert made.op == "text_encode_each"
    assert dict(made.params) == params


def test_a_text_may_come_over_a_link(imported: Import) -> None:
    prompt = sdxl(text_l=["t", 0]) | {"t": node("PrimitiveString", value="a embedding:style")}
    made = text_node(imported(prompt))
    assert [json.loads(str(value))[0] for name, value in made.params if "embedding" in name] == [
        "style"
    ]


@pytest.mark.parametrize(
    ("prompt", "details"),
    [
        (
            encoded("l", "t5", "flux", "CLIPTextEncodeSDXL", **SIZES, text_g="a", text_l="b"),
            "clip - flux has no clip_g",
        ),
        (
            encoded("l", "g", "sdxl", "CLIPTextEncodeFlux", clip_l="a", t5xxl="b", guidance=3.5),
            "clip - sdxl has no t5xxl",
        ),
    ],
)
def test_a_text_encoder_of_another_family_is_refused(
    imported: Import, prompt: Prompt, details: str
) -> None:
    with pytest.raises(ImportRejected) as caught:
        imported(prompt)
    assert [(p.node_id, p.details) for p in caught.value.problems] == [("6", details)]


@pytest.mark.parametrize(("make", "name"), [(sdxl, "text_l"), (sd3, "t5xxl"), (flux, "clip_l")])
def test_an_embedding_that_would_be_unpickled_is_refused_by_its_input(
    imported: Import, files: KnownFiles, make: Callable[..., Prompt], name: str
) -> None:
    files.files["embeddings", "old.pt"] = identity("old.pt")
    with pytest.raises(ImportRejected) as caught:
        imported(make(**{name: "embedding:old"}))
    (problem,) = caught.value.problems
    assert (problem.node_id, problem.extra_info["input_name"]) == ("6", name)


@pytest.mark.parametrize(
    ("type_", "second", "options"),
    [
        ("flux", "t5", (("t5xxl_min_padding", 1), ("t5xxl_min_length", 0))),
        ("sdxl", "g", ()),
    ],
)
def test_only_text_encoders_with_t5_take_its_options(
    imported: Import, type_: str, second: str, options: tuple[tuple[str, int], ...]
) -> None:
    prompt = encoded("l", second, type_, "CLIPTextEncode", text="a cat")
    prompt["o"] = node("T5TokenizerOptions", clip=["c", 0], min_padding=1, min_length=0)
    prompt["6"]["inputs"]["clip"] = ["o", 0]
    model = text_node(imported(prompt)).model
    assert model is not None
    assert model.options == options
