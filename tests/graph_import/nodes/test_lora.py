"""LoRA loaders: what they put on handles, the node that a patch file becomes, and who waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.comfy.importer import grow, import_prompt
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import Patch, Role
from nodeloom.graph_import.ir import Edge, Graph, Node, NodeId
from nodeloom.graph_import.nodes.base import NodeClass
from nodeloom.graph_import.nodes.lowering import Lowering, Value
from nodeloom.graph_import.nodes.registry import BUILT_IN, Registry
from nodeloom.graph_import.nodes.schema import NodeSchema, ports, socket
from nodeloom.graph_import.passes.verify import verify
from nodeloom.graph_import.types import FLOAT, IMAGE

from ..known_files import PICTURE, KnownFiles, identity
from ..prompts import Prompt, node, text_to_image

Import = Callable[[Prompt], Graph]

A, B = identity("a.safetensors"), identity("b.safetensors")


class MeasuredWidth(NodeClass):
    """A FLOAT that is known only when a picture is loaded."""

    schema = NodeSchema(
        class_type="MeasuredWidth",
        display_name="",
        category="",
        inputs=(socket("image", IMAGE),),
        outputs=ports(width=FLOAT),
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        return node.add("image_size", node.inputs)[:1]


@pytest.fixture
def registry() -> Registry:
    return Registry((*BUILT_IN, MeasuredWidth))


@pytest.fixture
def files() -> KnownFiles:
    return KnownFiles(files={("loras", "a"): A, ("loras", "b"): B})


def lora(
    source: str, name: str, strength_model: object = 1.0, strength_clip: object = 1.0
) -> Prompt:
    return node(
        "LoraLoader",
        model=[source, 0],
        clip=[source, 1],
        lora_name=name,
        strength_model=strength_model,
        strength_clip=strength_clip,
    )


def patched(*loras: tuple[object, ...]) -> Prompt:
    """Text to image with LoraLoaders "10", "11" ... in a row: (name, strengths)."""
    prompt = text_to_image(steps=2)
    source = "4"
    for index, (name, *strengths) in enumerate(loras):
        prompt[str(10 + index)] = lora(source, str(name), *strengths)
        source = str(10 + index)
    prompt["3"]["inputs"]["model"] = [source, 0]
    for encoder in ("6", "7"):
        prompt[encoder]["inputs"]["clip"] = [source, 1]
    return prompt


def of_op(graph: Graph, op: str) -> list[Node]:
    return [found for found in graph.nodes if found.op == op]


def patches(found: Node) -> tuple[Patch, ...]:
    assert found.model is not None
    return found.model.patches


def patch_inputs(found: Node) -> dict[str, Edge]:
    return {name: edge for name, edge in found.inputs if name.startswith("patch_")}


def edge(source: str) -> Edge:
    return Edge(source=NodeId(source), port=0)


def test_a_patch_file_is_one_node_that_all_users_of_the_patched_models_wait_for(
    imported: Import,
) -> None:
    graph = imported(patched(("a", 0.7, 0.3)))
    (fetch,) = of_op(graph, "patch_fetch")
    assert (fetch.id, fetch.model, fetch.depth) == ("10", None, 0)
    assert fetch.origin.class_type == "LoraLoader"
    assert dict(fetch.params) == {
        "path": A.path,
        "size_bytes": A.size_bytes,
        "mtime_ns": A.mtime_ns,
    }
    for found in of_op(graph, "denoise"):
        assert patches(found) == (Patch(file=A, strength=0.7),)
        assert patch_inputs(found) == {"patch_0": edge("10")}
    for found in of_op(graph, "text_encode"):
        assert patches(found) == (Patch(file=A, strength=0.3),)
        assert patch_inputs(found) == {"patch_0": edge("10")}
    (decode,) = of_op(graph, "vae_decode")
    assert patches(decode) == ()
    assert patch_inputs(decode) == {}


def test_loras_add_up_in_the_order_of_the_graph(imported: Import) -> None:
    graph = imported(patched(("a", 0.7, 0.3), ("b", -0.5, 1.0)))
    found = of_op(graph, "denoise")[0]
    assert patches(found) == (Patch(file=A, strength=0.7), Patch(file=B, strength=-0.5))
    assert patch_inputs(found) == {"patch_0": edge("10"), "patch_1": edge("11")}


def test_at_strength_zero_a_model_is_not_patched(imported: Import) -> None:
    graph = imported(patched(("a", 0.0, 1.0)))
    assert all(patches(found) == () for found in of_op(graph, "denoise"))
    assert all(patch_inputs(found) == {} for found in of_op(graph, "denoise"))
    assert all(len(patches(found)) == 1 for found in of_op(graph, "text_encode"))
    plain = imported(text_to_image(steps=2))
    nothing = imported(patched(("a", 0, 0)))
    assert {found.signature for found in nothing.nodes} == {f.signature for f in plain.nodes}


def test_one_file_in_two_loaders_is_fetched_once(imported: Import) -> None:
    graph = imported(patched(("a", 0.5, 0.5), ("a", 0.25, 0.0)))
    (fetch,) = of_op(graph, "patch_fetch")
    found = of_op(graph, "denoise")[0]
    assert patches(found) == (Patch(file=A, strength=0.5), Patch(file=A, strength=0.25))
    assert patch_inputs(found) == {"patch_0": edge(fetch.id), "patch_1": edge(fetch.id)}
    assert [m.nodes for m in graph.members if m.node_id in ("10", "11")] == [("10",), ()]


def test_the_model_only_loader_leaves_the_text_encoder_alone(imported: Import) -> None:
    prompt = text_to_image(steps=2)
    prompt["10"] = node("LoraLoaderModelOnly", model=["4", 0], lora_name="a", strength_model=-2.0)
    prompt["3"]["inputs"]["model"] = ["10", 0]
    graph = imported(prompt)
    assert all(patches(f) == (Patch(file=A, strength=-2.0),) for f in of_op(graph, "denoise"))
    assert all(patches(found) == () for found in of_op(graph, "text_encode"))


def test_other_strengths_are_other_nodes(imported: Import) -> None:
    def signatures(strength: float) -> set[str]:
        return {f.signature for f in of_op(imported(patched(("a", strength, 0.0))), "denoise")}

    assert signatures(0.5).isdisjoint(signatures(0.25))
    assert signatures(0.5) == signatures(0.5)


def test_a_strength_over_an_edge_is_waited_for(
    files: KnownFiles, registry: Registry, check: Callable[[Prompt], Validated]
) -> None:
    prompt = patched(("b", 1.0, 1.0), ("a", ["21", 0], 1.0))
    prompt["20"] = node("LoadImage", image=PICTURE)
    prompt["21"] = node("MeasuredWidth", image=["20", 0])
    valid = check(prompt)
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    assert {pending.id for pending in graph.pending} >= {"11", "3", "6"}
    assert [found.id for found in of_op(graph, "patch_fetch")] == ["10"]  # runs meanwhile
    known = {(NodeId("21"), 0): 2}
    files.files[("loras", "b")] = identity("b.safetensors", mtime_ns=99)  # overwritten meanwhile
    grown = grow(graph, valid.prompt, valid.roots, registry, files, known)
    verify(grown)
    assert grown.pending == ()
    found = of_op(grown, "denoise")[0]
    assert patches(found) == (Patch(file=B, strength=1.0), Patch(file=A, strength=2.0))


def test_a_loader_that_is_lowered_late_does_not_change_who_waits_for_whom(
    files: KnownFiles, registry: Registry, check: Callable[[Prompt], Validated]
) -> None:
    prompt = patched(("a", 1.0, 0.0))
    prompt["20"] = node("LoadImage", image=PICTURE)
    prompt["21"] = node("MeasuredWidth", image=["20", 0])
    # A second branch, before the first one in the prompt's order, whose strength comes late.
    late = {
        "1": lora("4", "a", ["21", 0], 0.0),
        "2": {**prompt["3"], "inputs": prompt["3"]["inputs"] | {"model": ["1", 0]}},
        "8b": node("VAEDecode", samples=["2", 0], vae=["4", 2]),
        "9b": node("SaveImage", images=["8b", 0], filename_prefix="late"),
    }
    valid = check(late | prompt)
    graph = import_prompt(valid.prompt, valid.roots, registry, files)
    assert [found.id for found in of_op(graph, "patch_fetch")] == ["10"]
    grown = grow(graph, valid.prompt, valid.roots, registry, files, {(NodeId("21"), 0): 3})
    verify(grown)
    assert [found.id for found in of_op(grown, "patch_fetch")] == ["10"]
    assert {found.model.key.role for found in of_op(grown, "denoise") if found.model} == {
        Role.DENOISER
    }
    assert all(patch_inputs(f) == {"patch_0": edge("10")} for f in of_op(grown, "denoise"))


def test_a_file_that_is_not_offered_is_refused(imported: Import) -> None:
    with pytest.raises(ImportRejected) as caught:
        imported(patched(("missing", 1.0, 1.0)))
    (problem, *_) = caught.value.problems
    assert (problem.node_id, problem.type) == ("10", "value_not_in_list")


def test_a_file_that_can_not_be_used_is_refused_with_the_reason(
    check: Callable[[Prompt], Validated], files: KnownFiles
) -> None:
    files.files[("loras", "a")] = "a: the file is truncated"
    with pytest.raises(ImportRejected) as caught:
        check(patched(("a", 1.0, 1.0)))
    (problem,) = caught.value.problems
    assert (problem.node_id, problem.type) == ("10", "custom_validation_failed")
    assert problem.details == "lora_name - a: the file is truncated"


@pytest.mark.parametrize(("strength", "kind"), [(101, "bigger"), (-100.5, "smaller")])
def test_a_strength_out_of_range_is_refused(imported: Import, strength: float, kind: str) -> None:
    with pytest.raises(ImportRejected) as caught:
        imported(patched(("a", strength, 1.0)))
    assert kind in caught.value.problems[0].type


def test_too_many_loras_on_a_model_are_refused(imported: Import) -> None:
    """Every node that uses the model reads all of them."""
    prompt, last = text_to_image(steps=1), "4"
    for index in range(65):
        prompt[f"l{index}"] = node(
            "LoraLoaderModelOnly", model=[last, 0], lora_name="a", strength_model=index + 1.0
        )
        last = f"l{index}"
    prompt["3"]["inputs"]["model"] = ["l63", 0]
    evaluation = next(n for n in imported(prompt).nodes if n.op == "denoise")
    assert evaluation.model is not None
    assert len(evaluation.model.patches) == 64
    prompt["3"]["inputs"]["model"] = ["l64", 0]
    with pytest.raises(ImportRejected) as refused:
        imported(prompt)
    (problem,) = refused.value.problems
    assert (problem.node_id, problem.extra_info["input_name"]) == ("l64", "model")
    assert "65 LoRAs on a model are too many" in problem.details
