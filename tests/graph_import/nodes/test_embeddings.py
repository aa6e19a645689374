"""Embeddings that texts name: which files they are, and that they are part of the node."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from nodeloom.graph_import.comfy.importer import grow, import_prompt
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.ir import Graph, NodeId
from nodeloom.graph_import.nodes.conditioning import MAX_EMBEDDINGS
from nodeloom.graph_import.nodes.registry import Registry

from ..known_files import KnownFiles, identity
from ..prompts import Prompt, node, text_to_image

Import = Callable[[Prompt], Graph]
FOUND = {
    "style.safetensors": "style",
    "sub/other.safetensors": "other",
    "odd,.sft": "odd",
    "plain": "plain.sft",
    "old.pt": "old.pt",
}


@pytest.fixture
def files() -> KnownFiles:
    stored = {
        ("embeddings", name): identity(f"{of}.safetensors" if "." not in of else of)
        for name, of in FOUND.items()
    }
    return KnownFiles(files=stored)


def embeddings(graph: Graph) -> list[object]:
    params = dict(graph.by_id()[NodeId("6")].params)
    entries = [str(value) for name, value in params.items() if name.startswith("embedding_")]
    return [json.loads(entry)[0] for entry in entries]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("a cat", []),
        ("embedding:style", ["style"]),
        ("a (embedding:style.safetensors:1.2), b", ["style.safetensors"]),
        ("a embedding:style, embedding:style b", ["style"]),
        ("x\nembedding:sub/other,, embedding:style", ["sub/other", "style"]),
        ("embedding:odd,.sft", ["odd,.sft"]),
        ("embedding:plain", ["plain"]),
        ("a,embedding:style Embedding:style embedding:nobody embedding:", []),
        (r"\(embedding:style\)", []),
        ("embedding: style", ["style"]),
    ],
)
def test_names_are_found_as_comfyui_finds_them(
    imported: Import, words: str, names: list[str]
) -> None:
    prompt = text_to_image()
    prompt["6"]["inputs"]["text"] = words
    assert embeddings(imported(prompt)) == names


def test_a_file_is_part_of_the_node(imported: Import, files: KnownFiles) -> None:
    prompt = text_to_image()
    prompt["6"]["inputs"]["text"] = "embedding:style"
    first = imported(prompt).by_id()[NodeId("6")]
    assert first.param("embedding_0") == json.dumps(["style", "/files/style.safetensors", 100, 1])
    files.files["embeddings", "style.safetensors"] = identity("style.safetensors", mtime_ns=2)
    assert imported(prompt).by_id()[NodeId("6")].signature != first.signature


def test_names_in_a_text_from_another_node_are_found(imported: Import) -> None:
    prompt = text_to_image() | {"t": node("PrimitiveString", value="a embedding:style")}
    prompt["6"]["inputs"]["text"] = ["t", 0]
    assert embeddings(imported(prompt)) == ["style"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("embedding:old", "embedding old.pt: it would have to be unpickled"),
        ("embedding:old.pt", "embedding old.pt: it would have to be unpickled"),
        (
            " ".join(f"embedding:e{index}" for index in range(MAX_EMBEDDINGS + 1)),
            f"the text names {MAX_EMBEDDINGS + 1} embeddings",
        ),
    ],
)
@pytest.mark.parametrize("is_linked", [False, True])
def test_a_text_that_names_what_is_not_read_is_refused(
    imported: Import, words: str, reason: str, is_linked: bool
) -> None:
    prompt = text_to_image() | {"t": node("PrimitiveString", value=words)}
    prompt["6"]["inputs"]["text"] = ["t", 0] if is_linked else words
    with pytest.raises(ImportRejected) as caught:
        imported(prompt)
    (problem,) = caught.value.problems
    assert problem.node_id == "6"
    assert problem.details.startswith(f"text - {reason}")


@pytest.mark.parametrize("happened", ["changed", "gone", "appeared"])
def test_a_growing_graph_keeps_the_files_that_it_began_with(
    check: Callable[[Prompt], Validated], registry: Registry, files: KnownFiles, happened: str
) -> None:
    prompt = text_to_image(steps=["size", 0])
    prompt["picture"] = node("EmptyImage", width=2, height=2, batch_size=1, color=0)
    prompt["size"] = node("GetImageSize", image=["picture", 0])
    prompt["6"]["inputs"]["text"] = "embedding:style, embedding:late, x"
    prompt["extra"] = node("CLIPSetLastLayer", clip=["4", 1], stop_at_clip_layer=-1)
    valid = check(prompt)
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    assert graph.pending != ()
    before = graph.by_id()[NodeId("6")]
    match happened:
        case "changed":
            files.files["embeddings", "style.safetensors"] = identity("style.safetensors", 2)
        case "gone":
            del files.files["embeddings", "style.safetensors"]
        case "appeared":
            files.files["embeddings", "late.safetensors"] = identity("late.safetensors")
    known = {(NodeId("size"), 0): 2}
    grown = grow(graph, valid.prompt, valid.roots, registry, files, known)
    assert grown.pending == ()
    assert grown.by_id()[NodeId("6")] == before
