"""Each rule, broken on purpose in an otherwise good Graph."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from nodeloom.graph_import.errors import GraphBroken
from nodeloom.graph_import.ir import Edge, Graph, Member, Node, NodeId, Pending
from nodeloom.graph_import.passes.verify import verify

from ..prompts import Prompt, text_to_image


@pytest.fixture
def graph(imported: Callable[[Prompt], Graph]) -> Graph:
    return imported(text_to_image(steps=2))


def with_node(graph: Graph, node_id: str, **changes: object) -> Graph:
    nodes = tuple(
        msgspec.structs.replace(node, **changes) if node.id == node_id else node
        for node in graph.nodes
    )
    return msgspec.structs.replace(graph, nodes=nodes)


def find(graph: Graph, node_id: str) -> Node:
    return graph.by_id()[NodeId(node_id)]


def test_a_good_graph_passes(graph: Graph) -> None:
    verify(graph)


def test_nodes_out_of_order(graph: Graph) -> None:
    turned = msgspec.structs.replace(graph, nodes=graph.nodes[::-1])
    with pytest.raises(GraphBroken, match="does not stand before it"):
        verify(turned)


def test_two_nodes_of_one_id(graph: Graph) -> None:
    with pytest.raises(GraphBroken, match="two nodes have this id"):
        verify(msgspec.structs.replace(graph, nodes=(*graph.nodes, graph.nodes[0])))


@pytest.mark.parametrize(
    ("node_id", "changes", "rule"),
    [
        ("5", {"op": "magic"}, "no op 'magic'"),
        ("5", {"op": "empty_image"}, "empty_image takes"),
        ("5", {"params": ()}, r"empty_latent takes .*, not \[\]"),
        ("5", {"outputs": ()}, "empty_latent gives"),
        ("6", {"model": None}, "role text_encoder"),
        ("5", {"signature": "0" * 64}, "signature"),
        ("8", {"depth": 1}, "depth is not 1"),
        ("8", {"inputs": (("samples", Edge(source=NodeId("6"), port=0)),)}, "samples is LATENT"),
        ("8", {"inputs": (("samples", Edge(source=NodeId("5"), port=7)),)}, "no port 7"),
        ("8", {"inputs": (("samples", Edge(source=NodeId("5"), port=-1)),)}, "no port -1"),
    ],
)
def test_a_node_that_is_not_what_it_says(
    graph: Graph, node_id: str, changes: dict[str, object], rule: str
) -> None:
    with pytest.raises(GraphBroken, match=rule) as caught:
        verify(with_node(graph, node_id, **changes))
    assert caught.value.details["node_id"] == node_id


def test_a_model_of_another_role(graph: Graph) -> None:
    with pytest.raises(GraphBroken, match="role vae"):
        verify(with_node(graph, "8", model=find(graph, "6").model))


def test_a_sink_that_is_no_node(graph: Graph) -> None:
    with pytest.raises(GraphBroken, match="no node"):
        verify(msgspec.structs.replace(graph, sinks=(NodeId("nobody"),)))


def test_a_pending_node_that_waits_for_nobody(graph: Graph) -> None:
    edge = Edge(source=NodeId("nobody"), port=0)
    pending = Pending(id=NodeId("4"), class_type="KSampler", waits_for=(edge,))
    with pytest.raises(GraphBroken, match="'nobody' does not stand before it"):
        verify(msgspec.structs.replace(graph, pending=(pending,)))


def test_a_pending_node_that_was_lowered(graph: Graph) -> None:
    pending = Pending(id=NodeId("3"), class_type="KSampler", waits_for=())
    with pytest.raises(GraphBroken, match="a member without nodes"):
        verify(msgspec.structs.replace(graph, pending=(pending,)))


def member(node_id: str, *nodes: str, shared_with: str | None = None) -> Member:
    return Member(
        node_id=node_id,
        class_type="X",
        nodes=tuple(NodeId(name) for name in nodes),
        is_output=False,
        shared_with=shared_with,
    )


@pytest.mark.parametrize(
    ("extra", "rule"),
    [
        (member("3"), "two members"),
        (member("x", "8"), "not listed by its member '8'"),
        (member("x", "ghost"), "it is no node"),
        (member("x", shared_with="ghost"), "shared with 'ghost'"),
        (member("x", shared_with="4"), "shared with '4'"),
    ],
)
def test_members_that_contradict_the_nodes(graph: Graph, extra: Member, rule: str) -> None:
    with pytest.raises(GraphBroken, match=rule):
        verify(msgspec.structs.replace(graph, members=(*graph.members, extra)))


def test_a_node_without_a_member(graph: Graph) -> None:
    with pytest.raises(GraphBroken, match="not listed"):
        verify(msgspec.structs.replace(graph, members=graph.members[:-1]))
