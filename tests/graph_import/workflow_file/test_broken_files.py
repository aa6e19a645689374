"""Files that make no sense: an error with the place, or a prompt with notes; in bounded time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.ui_workflows import OUT, TABLE, Json, host, inputs, made, node, subgraph
from nodeloom.graph_import.workflow_file import (
    WorkflowFileProblem,
    convert,
    parse_text,
    recognise,
)


def test_two_nodes_of_one_id_are_both_there() -> None:
    converted = made([node(1, "Source"), node(1, "Source")])
    assert len(converted.prompt) == 2
    assert [note.kind for note in converted.notes if note.kind == "renamed"] == ["renamed"]


def test_circles_of_reroutes_are_cut() -> None:
    nodes = [
        node(1, "Reroute", (("", 1),)),
        node(2, "Reroute", (("", 2),)),
        node(3, "Save", (("images", 3),)),
    ]
    links = [[1, 2, 0, 1, 0, "*"], [2, 1, 0, 2, 0, "*"], [3, 1, 0, 3, 0, "*"]]
    converted = made(nodes, links)
    assert converted.prompt["3"]["inputs"] == {"filename_prefix": "x"}
    assert any("circle" in note.text for note in converted.notes)


def test_a_subgraph_that_contains_itself_is_refused() -> None:
    inner = subgraph(nodes=[node(5, "sub")], links=[])
    with pytest.raises(WorkflowFileProblem, match="'Inner' contains itself"):
        made(host(), OUT, definitions={"subgraphs": [inner]})


@pytest.mark.parametrize("depth", [100, 101])
def test_subgraphs_may_lie_a_hundred_deep(depth: int) -> None:
    definitions = [
        subgraph(id=f"d{n}", name=f"D{n}", nodes=[node(5, f"d{n + 1}")], links=[])
        for n in range(depth)
    ]
    definitions[-1]["nodes"] = [node(5, "Source")]
    nodes = [node(1, "d0")]
    if depth > 100:
        with pytest.raises(WorkflowFileProblem, match="'D100' lies more than 100"):
            made(nodes, definitions={"subgraphs": definitions})
    else:
        (key,) = made(nodes, definitions={"subgraphs": definitions}).prompt
        assert key == ":".join(["1", *["5"] * depth])


def test_subgraphs_that_multiply_are_refused_in_time() -> None:
    definitions = [
        subgraph(
            id=f"d{n}", name=f"D{n}", nodes=[node(i, f"d{n + 1}") for i in range(10)], links=[]
        )
        for n in range(9)
    ]
    started = time.monotonic()
    with pytest.raises(WorkflowFileProblem, match="more than 250000 nodes"):
        made([node(1, "d0")], definitions={"subgraphs": definitions})
    assert time.monotonic() - started < 30


def test_a_hundred_thousand_nodes_in_a_row() -> None:
    count = 100_000
    nodes = [node(0, "Source")]
    nodes += [node(i, "Reroute", (("", i),)) for i in range(1, count)]
    nodes.append(node(count, "Save", (("images", count),)))
    links = [[i, i - 1, 0, i, 0, "IMAGE"] for i in range(1, count + 1)]
    started = time.monotonic()
    assert inputs(nodes, links, str(count))["images"] == ["0", 0]
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"nodes": "x"}, "is no list"),
        ({"nodes": [5]}, r"nodes\[0\] of the workflow is no object"),
        ({"nodes": [{"type": "A"}]}, "has no id"),
        ({"nodes": [{"id": 3}]}, r"\(id 3\) has no type"),
        ({"nodes": [], "definitions": {"subgraphs": [3]}}, r"subgraphs\[0\] is no subgraph"),
    ],
)
def test_wrong_shapes_are_refused_with_their_place(document: Json, said: str) -> None:
    with pytest.raises(WorkflowFileProblem, match=said):
        convert(document, TABLE)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
ANY_INPUT = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["image", "steps", "images", "x"]) | VALUES,
        "type": st.sampled_from(["IMAGE", "*", "INT,FLOAT"]) | VALUES,
        "link": st.integers(0, 6) | VALUES,
        "widget": st.just({"name": "steps"}) | VALUES,
    },
)
ANY_NODE = st.fixed_dictionaries(
    {
        "id": st.integers(0, 4) | VALUES,
        "type": st.sampled_from(
            ["Sampler", "Filter", "Resize", "Join", "Reroute", "PrimitiveNode", "sub", "two", "Odd"]
        )
        | st.just("workflow>g")
        | VALUES,
    },
    optional={
        "mode": st.sampled_from([0, 2, 4]) | VALUES,
        "inputs": st.lists(ANY_INPUT, max_size=3) | VALUES,
        "outputs": st.lists(st.just({"type": "IMAGE"}), max_size=2) | VALUES,
        "widgets_values": VALUES,
        "properties": st.fixed_dictionaries(
            {},
            optional={
                "proxyWidgets": st.lists(
                    st.lists(st.sampled_from(["-1", "1", "steps"]), max_size=3), max_size=3
                )
                | VALUES
            },
        )
        | VALUES,
    },
)
ANY_LINK = (
    st.lists(st.sampled_from([-20, -10, 0, 1, 2, 3, 4, "1"]), min_size=5, max_size=6) | VALUES
)
ANY_GRAPH = st.fixed_dictionaries(
    {
        "nodes": st.lists(ANY_NODE, max_size=5) | VALUES,
        "links": st.lists(ANY_LINK, max_size=6) | VALUES,
    }
)


def any_definition(id_: str) -> st.SearchStrategy[Json]:
    slots = st.lists(
        st.fixed_dictionaries(
            {"name": st.just("steps"), "linkIds": st.lists(st.integers(0, 6), max_size=2)}
        ),
        max_size=2,
    )
    return st.builds(
        lambda graph, ins, outs: {"id": id_, "inputs": ins, "outputs": outs, **graph},
        ANY_GRAPH,
        slots,
        slots | VALUES,
    )


@given(
    graph=ANY_GRAPH,
    definitions=st.tuples(any_definition("sub"), any_definition("two")),
    group=st.dictionaries(st.just("g"), ANY_GRAPH | VALUES),
)
@settings(max_examples=300, deadline=None)
def test_no_file_does_harm(graph: Json, definitions: tuple[Json, Json], group: Json) -> None:
    """Whatever the file is, there is a prompt of whole entries or an error that people can read."""
    document = {
        **graph,
        "definitions": {"subgraphs": list(definitions)},
        "extra": {"groupNodes": group},
    }
    try:
        converted = convert(document, TABLE)
    except WorkflowFileProblem:
        return
    for entry in converted.prompt.values():
        assert isinstance(entry["class_type"], str)
        for value in entry["inputs"].values():
            assert not isinstance(value, list) or value[0] in converted.prompt


@pytest.mark.parametrize(
    "wrap",
    [
        lambda w: w,
        lambda w: {"workflow": w},
        lambda w: {"prompt": w},
        lambda w: {"extra_data": {"extra_pnginfo": {"workflow": w}}},
    ],
)
def test_wrapped_workflows_are_recognised(wrap: Any) -> None:
    workflow = {"nodes": [], "links": []}
    prompt = {"1": {"class_type": "A", "inputs": {}}}
    assert recognise(wrap(workflow)).workflow == workflow
    if wrap(prompt) != {"workflow": prompt}:
        assert recognise({"prompt": prompt}).prompt == prompt


def test_json_is_read_with_tolerance() -> None:
    assert parse_text(b'\xef\xbb\xbf{"a": NaN}') == {"a": None}
    assert parse_text('"{\\"a\\": 1}"') == {"a": 1}
    for text in ("{", b"\xff", "[" * 100_000):
        with pytest.raises(WorkflowFileProblem):
            parse_text(text)
