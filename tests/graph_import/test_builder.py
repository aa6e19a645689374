from __future__ import annotations

from collections.abc import Mapping

import pytest
from nodeloom.graph_import.builder import GraphBuilder, content_signature
from nodeloom.graph_import.errors import GraphBroken
from nodeloom.graph_import.ir import Edge, EdgeKind, Member, NodeId, Origin, Pending, Port

ORIGIN = Origin(node_id="1", class_type="EmptyImage")
SIZE = (Port(name="width", type="INT"), Port(name="height", type="INT"))


def add(
    builder: GraphBuilder,
    node_id: str,
    params: Mapping[str, int] | None = None,
    inputs: Mapping[str, Edge] | None = None,
    op: str = "op",
) -> tuple[Edge, ...]:
    return builder.add(
        NodeId(node_id),
        op,
        params=params or {},
        inputs=inputs or {},
        outputs=SIZE,
        origin=ORIGIN,
    )


def test_an_edge_per_port_comes_back() -> None:
    assert add(GraphBuilder(), "a") == (
        Edge(source=NodeId("a"), port=0),
        Edge(source=NodeId("a"), port=1),
    )


def test_depth_is_the_longest_way_from_a_source() -> None:
    builder = GraphBuilder()
    first = add(builder, "a")[0]
    second = add(builder, "b", inputs={"x": first})[0]
    add(builder, "c", inputs={"x": first, "y": second})
    assert [node.depth for node in builder.build().nodes] == [0, 1, 2]


def test_a_signature_is_of_the_content_alone() -> None:
    one, two = GraphBuilder(), GraphBuilder()
    add(one, "a", {"x": 1, "y": 2})
    add(one, "b", inputs={"u": add(one, "z")[0], "v": Edge(source=NodeId("a"), port=1)})
    add(two, "other a", {"y": 2, "x": 1})
    feed = {"v": Edge(source=NodeId("other a"), port=1), "u": add(two, "other z")[0]}
    add(two, "other b", inputs=feed)
    assert one.signature(NodeId("a")) == two.signature(NodeId("other a"))
    assert one.signature(NodeId("b")) == two.signature(NodeId("other b"))


def test_everything_that_a_node_computes_from_is_in_its_signature() -> None:
    edge = ("x", EdgeKind.EAGER, "s", 0)
    variants = [
        content_signature("op", None, {}, []),
        content_signature("po", None, {}, []),
        content_signature("op", None, {"n": 1}, []),
        content_signature("op", None, {"n": 1.0}, []),
        content_signature("op", None, {"n": True}, []),
        content_signature("op", None, {"m": 1}, []),
        content_signature("op", None, {}, [edge]),
        content_signature("op", None, {}, [("y", EdgeKind.EAGER, "s", 0)]),
        content_signature("op", None, {}, [("x", EdgeKind.DEFERRED, "s", 0)]),
        content_signature("op", None, {}, [("x", EdgeKind.EAGER, "t", 0)]),
        content_signature("op", None, {}, [("x", EdgeKind.EAGER, "s", 1)]),
    ]
    assert len(set(variants)) == len(variants)


def test_a_second_node_of_the_same_id_is_refused() -> None:
    builder = GraphBuilder()
    add(builder, "a")
    with pytest.raises(GraphBroken, match="two nodes are called 'a'"):
        add(builder, "a")


@pytest.mark.parametrize(("source", "port"), [("b", 0), ("a", 2), ("a", -1)])
def test_an_edge_from_nowhere_is_refused(source: str, port: int) -> None:
    builder = GraphBuilder()
    add(builder, "a")
    edge = Edge(source=NodeId(source), port=port)
    with pytest.raises(GraphBroken, match=f"port {port} of '{source}'"):
        add(builder, "c", inputs={"x": edge})
    with pytest.raises(GraphBroken, match="'p' needs"):
        builder.add_pending(Pending(id=NodeId("p"), class_type="X", waits_for=(edge,)))


def test_a_name_that_is_constant_and_input_is_refused() -> None:
    builder = GraphBuilder()
    edge = add(builder, "a")[0]
    with pytest.raises(GraphBroken, match=r"\['x'\] twice"):
        add(builder, "b", {"x": 1}, {"x": edge})


def test_a_sink_must_be_a_node_and_is_one_once() -> None:
    builder = GraphBuilder()
    add(builder, "a")
    with pytest.raises(GraphBroken, match="'b' is no node"):
        builder.add_sink(NodeId("b"))
    builder.add_sink(NodeId("a"))
    builder.add_sink(NodeId("a"))
    assert builder.build().sinks == ("a",)


def test_members_and_pending_nodes_are_kept_in_order() -> None:
    builder = GraphBuilder()
    for node_id in ("m", "n"):
        builder.add_member(Member(node_id=node_id, class_type="X", nodes=(), is_output=False))
        builder.add_pending(Pending(id=NodeId(node_id), class_type="X", waits_for=()))
    graph = builder.build()
    assert [m.node_id for m in graph.members] == ["m", "n"]
    assert [p.id for p in graph.pending] == ["m", "n"]
