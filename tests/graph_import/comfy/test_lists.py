"""ComfyUI's lists: which calls a node becomes, and what waits until a list's length is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.graph_import.comfy.importer import grow, import_prompt
from nodeloom.graph_import.comfy.validate import Validated
from nodeloom.graph_import.errors import ImportRejected
from nodeloom.graph_import.handles import Scalar
from nodeloom.graph_import.ir import Edge, Graph, NodeId
from nodeloom.graph_import.nodes.registry import Registry
from nodeloom.graph_import.passes.verify import verify

from ..known_files import CHECKPOINT, KnownFiles
from ..prompts import Prompt, node

Check = Callable[[Prompt], Validated]

LENGTH = (NodeId("2"), 1)


def rebatched() -> Prompt:
    """A batch of three latents one by one, each decoded and saved."""
    return {
        "1": node("EmptyLatentImage", width=64, height=64, batch_size=3),
        "2": node("RebatchLatents", latents=["1", 0], batch_size=1),
        "3": node("CheckpointLoaderSimple", ckpt_name=CHECKPOINT),
        "4": node("VAEDecode", samples=["2", 0], vae=["3", 2]),
        "5": node("SaveImage", images=["4", 0], filename_prefix="x"),
    }


def switched(switch: object) -> Prompt:
    """One of two pictures, saved."""
    return {
        "1": node("EmptyImage", width=8, height=8, batch_size=1, color=0),
        "2": node("EmptyImage", width=16, height=16, batch_size=1, color=1),
        "3": node("ComfySwitchNode", switch=switch, on_false=["1", 0], on_true=["2", 0]),
        "4": node("SaveImage", images=["3", 0], filename_prefix="x"),
        "5": node("GetImageSize", image=["6", 0]),
        "6": node("EmptyImage", width=24, height=24, batch_size=1, color=1),
        "7": node(
            "RegexMatch",
            string="abc",
            regex_pattern="b",
            case_insensitive=True,
            multiline=False,
            dotall=False,
        ),
    }


@pytest.fixture
def grown(
    check: Check, registry: Registry, files: KnownFiles
) -> Callable[[Prompt, dict[tuple[NodeId, int], Scalar]], Graph]:
    def run(prompt: Prompt, known: dict[tuple[NodeId, int], Scalar]) -> Graph:
        valid = check(prompt)
        graph = import_prompt(valid.prompt, valid.roots, registry, files)
        return grow(graph, valid.prompt, valid.roots, registry, files, known)

    return run


Grown = Callable[[Prompt, dict[tuple[NodeId, int], Scalar]], Graph]
Imported = Callable[[Prompt], Graph]


def test_a_reader_of_a_list_waits_for_its_length(imported: Imported) -> None:
    graph = imported(rebatched())
    assert [(p.id, p.waits_for) for p in graph.pending] == [
        ("4", (Edge(source=NodeId("2"), port=1),)),
        ("5", ()),
    ]
    assert [n.id for n in graph.nodes] == ["1", "2"]


def test_a_class_without_input_lists_is_called_once_per_item(grown: Grown) -> None:
    graph = grown(rebatched(), {LENGTH: 3})
    verify(graph)
    assert not graph.pending
    members = {member.node_id: member.nodes for member in graph.members}
    assert members["5"] == ("5/call-0", "5/call-1", "5/call-2") == graph.sinks
    assert [n.param("index") for n in graph.nodes if n.op == "list_item"] == [0, 1, 2]
    assert [n.inputs[0][1].source for n in graph.nodes if n.op == "vae_decode"] == [
        "4/item-samples-0",
        "4/item-samples-1",
        "4/item-samples-2",
    ]


def test_an_empty_list_is_refused_where_it_is_read(grown: Grown) -> None:
    with pytest.raises(ImportRejected) as rejected:
        grown(rebatched(), {LENGTH: 0})
    (problem,) = rejected.value.problems
    assert (problem.node_id, problem.details) == ("4", "samples - the list is empty")


@pytest.mark.parametrize(("switch", "size"), [(False, 8), (True, 16)])
def test_only_the_chosen_branch_is_lowered(imported: Imported, switch: bool, size: int) -> None:
    graph = imported(switched(switch))
    assert [n.param("width") for n in graph.nodes if n.op == "empty_image"] == [size]
    assert {m.node_id for m in graph.members} == {"3", "4", "2" if switch else "1"}


def test_a_switch_waits_for_its_value_and_no_branch_is_run_before(
    imported: Imported, grown: Grown
) -> None:
    graph = imported(switched(["7", 0]))
    assert [n.op for n in graph.nodes] == ["regex_match"]
    later = grown(switched(["7", 0]), {(NodeId("7"), 0): True})
    assert [n.param("width") for n in later.nodes if n.op == "empty_image"] == [16]
    assert not later.pending


def test_texts_are_folded_where_they_are_constants(imported: Imported) -> None:
    graph = imported(
        {
            "1": node("StringConcatenate", string_a="a", string_b="b", delimiter="-"),
            "2": node("EmptyImage", width=8, height=8, batch_size=1, color=0),
            "3": node("SaveImage", images=["2", 0], filename_prefix=["1", 0]),
        }
    )
    (save,) = [n for n in graph.nodes if n.op == "save_image"]
    assert save.param("filename_prefix") == "a-b"


def test_latents_of_a_growing_input_are_joined_in_the_order_of_their_numbers(
    imported: Imported,
) -> None:
    latent = node("EmptyLatentImage", width=64, height=64, batch_size=1)
    joined = {f"latents.latent{index}": ["1", 0] for index in (10, 2, 0)}
    prompt = rebatched() | {"1": latent, "2": {"class_type": "BatchLatentsNode", "inputs": joined}}
    graph = imported(prompt)
    assert [n.id for n in graph.nodes if n.op == "latent_batch"] == ["2/join-0", "2/join-1"]
