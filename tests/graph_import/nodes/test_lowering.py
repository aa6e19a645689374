"""What each node class becomes: the whole table of ops, seen through real prompts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.comfy.importer import import_prompt
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.families import family
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.graph_import.ir import Edge, Graph, Node, NodeId
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.sampling.schedules import ksampler_sigmas

from ..known_files import CHECKPOINT, PICTURE, KnownFiles, identity
from ..prompts import Prompt, node, text_to_image

Import = Callable[[Prompt], Graph]


def model(role: Role, dtype: str) -> ModelRef:
    key = ModelKey(role=role, family="sd15", file=identity(CHECKPOINT), dtype=dtype)
    return ModelRef(key=key)


def edge(source: str, port: int = 0) -> Edge:
    return Edge(source=NodeId(source), port=port)


def by_id(graph: Graph) -> dict[str, Node]:
    return {str(node_id): found for node_id, found in graph.by_id().items()}


def params(found: Node) -> dict[str, object]:
    return dict(found.params)


def inputs(found: Node) -> dict[str, Edge]:
    return dict(found.inputs)


def test_text_to_image_becomes_one_node_per_model_call(imported: Import) -> None:
    graph = imported(text_to_image(steps=3))
    assert [(n.id, n.op, n.depth) for n in graph.nodes] == [
        ("6", "text_encode", 0),
        ("7", "text_encode", 0),
        ("5", "empty_latent", 0),
        ("3/begin", "sample_begin", 1),
        ("3/eval-0", "denoise", 2),
        ("3/eval-1", "denoise", 3),
        ("3/eval-2", "denoise", 4),
        ("3/end", "sample_end", 5),
        ("8", "vae_decode", 6),
        ("9", "save_image", 7),
    ]
    assert graph.sinks == ("9",)
    assert graph.pending == ()
    assert [(m.node_id, len(m.nodes), m.is_output) for m in graph.members] == [
        ("4", 0, False),
        ("6", 1, False),
        ("7", 1, False),
        ("5", 1, False),
        ("3", 5, False),
        ("8", 1, False),
        ("9", 1, True),
    ]


def test_the_arguments_are_those_of_the_ops(imported: Import) -> None:
    nodes = by_id(imported(text_to_image(steps=3, cfg=7)))
    sigmas = ksampler_sigmas(family("sd15").model_sampling, "normal", 3, 1.0, "euler")
    run = {"sampler": "euler", "sigmas": sigmas, "family": "sd15"}
    assert params(nodes["6"]) == {"text": "a cat"}
    assert nodes["6"].model == model(Role.TEXT_ENCODER, "float16")
    assert params(nodes["5"]) == {"width": 64, "height": 64, "batch_size": 1}
    assert params(nodes["3/begin"]) == {**run, "seed": 7, "add_noise": True}
    assert inputs(nodes["3/begin"]) == {"latent": edge("5")}
    assert params(nodes["3/eval-1"]) == {**run, "cfg": 7.0, "evaluation": 1}
    assert isinstance(nodes["3/eval-1"].param("cfg"), float)
    assert inputs(nodes["3/eval-1"]) == {
        "state": edge("3/eval-0"),
        "positive": edge("6"),
        "negative": edge("7"),
    }
    assert nodes["3/eval-1"].model == model(Role.DENOISER, "float32")
    assert params(nodes["3/end"]) == run
    assert inputs(nodes["3/end"]) == {"state": edge("3/eval-2"), "latent": edge("5")}
    assert nodes["8"].model == model(Role.VAE, "float32")
    assert inputs(nodes["8"]) == {"samples": edge("3/end")}
    assert params(nodes["9"]) == {"filename_prefix": "out", "folder": "output"}
    assert nodes["9"].hidden == ("prompt", "extra_pnginfo")


def test_evaluations_that_end_a_step_tell_progress_and_want_the_preview_method(
    imported: Import,
) -> None:
    nodes = imported(text_to_image(steps=2, sampler_name="heun")).nodes
    told = [
        (n.id, n.origin.value, n.origin.max_value, n.hidden)
        for n in nodes
        if n.origin.node_id == "3"
    ]
    preview = ("preview_method",)
    assert told == [
        ("3/begin", 0, 0, ()),
        ("3/eval-0", 0, 0, ()),
        ("3/eval-1", 1, 2, preview),
        ("3/eval-2", 2, 2, preview),
        ("3/end", 0, 0, ()),
    ]


def test_a_denoise_below_one_keeps_the_number_of_steps(imported: Import) -> None:
    nodes = by_id(imported(text_to_image(steps=4, denoise=0.5)))
    sigmas = params(nodes["3/begin"])["sigmas"]
    assert sigmas == ksampler_sigmas(family("sd15").model_sampling, "normal", 4, 0.5, "euler")
    assert nodes["3/eval-3"].origin.max_value == 4


def test_a_denoise_of_nothing_hands_the_latent_on_and_needs_no_words(imported: Import) -> None:
    graph = imported(text_to_image(denoise=0.0))
    assert [n.id for n in graph.nodes] == ["5", "8", "9"]
    assert inputs(by_id(graph)["8"]) == {"samples": edge("5")}
    assert {m.node_id: m.nodes for m in graph.members}["6"] == ()


def test_a_picture_is_named_by_its_identity(imported: Import, files: KnownFiles) -> None:
    files.pictures[PICTURE] = identity(PICTURE, mtime_ns=5)
    nodes = by_id(
        imported(
            {
                "1": node("LoadImage", image=f"{PICTURE} [input]"),
                "2": node("VAEEncode", pixels=["1", 0], vae=["4", 2]),
                "3": node("VAEDecode", samples=["2", 0], vae=["4", 2]),
                "4": node("CheckpointLoaderSimple", ckpt_name=CHECKPOINT),
                "5": node("PreviewImage", images=["3", 0]),
            }
        )
    )
    assert params(nodes["1"]) == {"path": f"/files/{PICTURE}", "size_bytes": 100, "mtime_ns": 5}
    assert [(p.name, p.type) for p in nodes["1"].outputs] == [("image", "IMAGE"), ("mask", "MASK")]
    assert inputs(nodes["2"]) == {"pixels": edge("1")}
    assert params(nodes["5"])["folder"] == "temp"


def test_constants_are_folded_through_primitives(imported: Import) -> None:
    prompt = text_to_image(steps=["n", 0], seed=["s", -1], cfg=["f", 0], denoise=["f1", 0])
    prompt |= {
        "n": node("PrimitiveInt", value=["m", 0]),
        "m": node("PrimitiveInt", value="2"),
        "s": node("PrimitiveInt", value=99),
        "f": node("PrimitiveFloat", value=3),
        "f1": node("PrimitiveFloat", value=1),
        "t": node("PrimitiveString", value="a dog"),
    }
    prompt["6"]["inputs"]["text"] = ["t", 0]
    nodes = by_id(imported(prompt))
    assert "3/eval-1" in nodes
    assert "3/eval-2" not in nodes
    assert params(nodes["3/begin"])["seed"] == 99
    assert params(nodes["3/eval-0"])["cfg"] == 3.0
    assert params(nodes["6"]) == {"text": "a dog"}


def test_sizes_may_come_over_edges(imported: Import) -> None:
    prompt = text_to_image()
    prompt["20"] = node("EmptyImage", width=32, height=16, batch_size=1, color=0)
    prompt["21"] = node("GetImageSize", image=["20", 0])
    prompt["5"]["inputs"] |= {"width": ["21", 0], "height": ["21", -2]}
    graph = imported(prompt)
    latent = by_id(graph)["5"]
    assert graph.pending == ()
    assert inputs(latent) == {"width": edge("21", 0), "height": edge("21", 1)}
    assert params(latent) == {"batch_size": 1}


@pytest.mark.parametrize(
    ("changes", "details"),
    [
        ({"steps": ["n", 0]}, "Value 0 smaller than min of 1: steps"),
        ({"denoise": ["f", 0]}, "Value 1.5 bigger than max of 1.0: denoise"),
        ({"steps": 10_000, "denoise": 1e-9}, "steps - steps 10000 at denoise 1e-09 need"),
    ],
)
def test_a_folded_constant_that_shapes_the_graph_must_be_in_range(
    imported: Import, changes: dict[str, object], details: str
) -> None:
    prompt = text_to_image(**changes)
    prompt["n"] = node("PrimitiveInt", value=0)
    prompt["f"] = node("PrimitiveFloat", value=1.5)
    with pytest.raises(ImportRejected, match="failed validation") as caught:
        imported(prompt)
    assert [p.node_id for p in caught.value.problems] == ["3"]
    assert details in caught.value.text


def test_a_graph_over_the_limits_is_refused(imported: Import) -> None:
    with pytest.raises(ImportRejected) as caught:
        imported(text_to_image(steps=10_000))
    (problem,) = caught.value.problems
    assert (problem.node_id, problem.type) == ("3", "prompt_too_large")
    assert "sigmas" in problem.details


def test_a_file_that_goes_between_validation_and_lowering_is_named(
    check: Callable[[Prompt], Validated], registry: Registry, files: KnownFiles
) -> None:
    prompt = text_to_image()
    prompt["1"] = node("LoadImage", image=PICTURE)
    prompt["2"] = node("PreviewImage", images=["1", 0])
    valid = check(prompt)
    files.pictures.clear()
    files.checkpoints.clear()
    with pytest.raises(ImportRejected) as caught:
        import_prompt(valid.prompt, valid.roots, registry, files)
    assert {p.node_id: p.details for p in caught.value.problems} == {
        "1": f"image - Invalid image file: {PICTURE}",
        "4": "ckpt_name - there is no such checkpoint",
    }


def test_a_slash_in_an_id_cannot_clash_with_a_part(imported: Import) -> None:
    prompt = text_to_image(latent_image=["3/begin", 0])
    prompt["3/begin"] = prompt.pop("5")
    nodes = by_id(imported(prompt))
    assert nodes["3//begin"].op == "empty_latent"
    assert nodes["3/begin"].op == "sample_begin"
    assert inputs(nodes["3/begin"]) == {"latent": edge("3//begin")}
