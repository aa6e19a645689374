"""Workflows in UI format as prompts: small files, one for each rule.

Source of the rules: spec importer-rules.md; the numbers in names of tests are its sections.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodeloom.graph_import.workflow_file import (
    Converted,
    NodeTable,
    WorkflowFileProblem,
    convert,
    parse_text,
    recognise,
)

Json = dict[str, Any]


def described(required: Json, outputs: tuple[str, ...] = ("IMAGE",), **more: Any) -> Json:
    return {"input": {"required": required}, "output": list(outputs), **more}


TABLE = NodeTable(
    {
        "Source": described({"text": ["STRING", {"default": "", "dynamicPrompts": True}]}),
        "Filter": described({"image": ["IMAGE"], "amount": ["FLOAT", {"default": 0.5}]}),
        "Save": described(
            {"images": ["IMAGE"], "filename_prefix": ["STRING", {"default": "x"}]}, ()
        ),
        "SaveImage": described(
            {"images": ["IMAGE"], "filename_prefix": ["STRING", {"default": "x"}]}, ()
        ),
        "Sampler": described(
            {
                "seed": ["INT", {"default": 0, "control_after_generate": True}],
                "steps": ["INT", {"default": 20}],
                "sampler": [["euler", "heun"], {}],
            }
        ),
        "Resize": described(
            {
                "image": ["IMAGE"],
                "how": [
                    "COMFY_DYNAMICCOMBO_V3",
                    {
                        "options": [
                            {
                                "key": "by",
                                "inputs": {"required": {"factor": ["FLOAT", {"default": 1.0}]}},
                            },
                            {
                                "key": "to",
                                "inputs": {
                                    "required": {"width": ["INT", {}], "height": ["INT", {}]}
                                },
                            },
                        ]
                    },
                ],
                "sharp": ["BOOLEAN", {}],
            }
        ),
        "Join": described({"images": ["COMFY_AUTOGROW_V3", {"template": {}}]}),
        "Forced": described({"a": ["INT", {"forceInput": True}], "b": ["INT", {"default": 1}]}),
        "Upload": described({"image": [["a.png"], {"image_upload": True}]}),
    }
)


def node(id_: int | str, type_: str, inputs: tuple[Any, ...] = (), **more: Any) -> Json:
    """Inputs are (name, link) or (name, link, widget)."""
    slots = [
        {
            "name": name,
            "type": more.get("type", "IMAGE"),
            "link": link,
            **({"widget": {"name": widget[0]}} if widget else {}),
        }
        for name, link, *widget in inputs
    ]
    outputs = [{"name": "out", "type": more.pop("type", "IMAGE")}]
    return {"id": id_, "type": type_, "inputs": slots, "outputs": outputs, **more}


def made(nodes: list[Json], links: list[Any] = [], **more: Any) -> Converted:  # noqa: B006
    return convert({"nodes": nodes, "links": links, **more}, TABLE)


def inputs(nodes: list[Json], links: list[Any], key: str, **more: Any) -> Json:
    found: Json = made(nodes, links, **more).prompt[key]["inputs"]
    return found


def test_values_go_by_position_past_entries_that_are_never_sent() -> None:
    stored = [7, "randomize", 12, "heun", "surplus"]
    assert inputs([node(1, "Sampler", widgets_values=stored)], [], "1") == {
        "seed": 7,
        "steps": 12,
        "sampler": "heun",
    }


def test_what_is_not_stored_has_its_default_and_a_note() -> None:
    converted = made([node(1, "Sampler", widgets_values=[7, "fixed"])])
    assert converted.prompt["1"]["inputs"] == {"seed": 7, "steps": 20, "sampler": "euler"}
    (note,) = converted.notes
    assert (note.kind, note.node, note.class_type) == ("defaulted", "1", "Sampler")
    assert "steps, sampler" in note.text


def test_values_may_be_stored_by_name() -> None:
    stored = {"steps": 3, "unknown": 1}
    assert inputs([node(1, "Sampler", widgets_values=stored)], [], "1")["steps"] == 3


def test_a_linked_widget_takes_its_entry_and_the_link_wins() -> None:
    nodes = [
        node(1, "Source", widgets_values=["a"]),
        node(2, "Sampler", (("steps", 5, "steps"),), widgets_values=[7, "fixed", 9, "heun"]),
    ]
    found = inputs(nodes, [[5, 1, 0, 2, 0, "INT"]], "2")
    assert found == {"seed": 7, "steps": ["1", 0], "sampler": "heun"}


def test_dynamic_combos_bring_inputs_of_their_own() -> None:
    stored = ["to", 640, 480, True]
    assert inputs([node(1, "Resize", widgets_values=stored)], [], "1") == {
        "how": "to",
        "how.width": 640,
        "how.height": 480,
        "sharp": True,
    }
    assert inputs([node(1, "Resize", widgets_values=["by", 2.0, True])], [], "1") == {
        "how": "by",
        "how.factor": 2.0,
        "sharp": True,
    }


def test_growing_inputs_keep_their_names() -> None:
    nodes = [node(1, "Source"), node(2, "Join", (("images.image0", None), ("images.image2", 4)))]
    assert inputs(nodes, [[4, 1, 0, 2, 1, "IMAGE"]], "2") == {"images.image2": ["1", 0]}


def test_entries_of_inputs_that_only_take_links_are_left_out() -> None:
    assert inputs([node(1, "Forced", widgets_values=[99, 5])], [], "1") == {"b": 5}
    assert inputs([node(1, "Forced", widgets_values=[5])], [], "1") == {"b": 5}


def test_lists_are_wrapped_so_that_they_are_no_links() -> None:
    found = inputs([node(1, "Upload", widgets_values=[["a", 0], "image"])], [], "1")
    assert found == {"image": {"__value__": ["a", 0]}}


def test_reroutes_and_bypassed_nodes_hand_on() -> None:
    nodes = [
        node(1, "Source"),
        node(2, "Reroute", (("", 10),)),
        node(3, "Filter", (("image", 11),), mode=4),
        node(4, "Save", (("images", 12),)),
    ]
    links = [[10, 1, 0, 2, 0, "IMAGE"], [11, 2, 0, 3, 0, "IMAGE"], [12, 3, 0, 4, 0, "IMAGE"]]
    converted = made(nodes, links)
    assert converted.prompt.keys() == {"1", "4"}
    assert converted.prompt["4"]["inputs"]["images"] == ["1", 0]
    assert [(n.kind, n.node) for n in converted.notes if n.kind == "bypassed"] == [
        ("bypassed", "3")
    ]


def test_a_bypassed_node_without_a_fitting_input_ends_the_link() -> None:
    odd = node(2, "Filter", (("image", 10),), mode=4)
    odd["inputs"][0]["type"] = "LATENT"
    nodes = [node(1, "Source"), odd, node(3, "Save", (("images", 11),))]
    found = inputs(nodes, [[10, 1, 0, 2, 0, "IMAGE"], [11, 2, 0, 3, 0, "IMAGE"]], "3")
    assert found == {"filename_prefix": "x"}


def test_behind_a_muted_node_a_widget_has_its_own_value() -> None:
    nodes = [
        node(1, "Source", mode=2),
        node(2, "Sampler", (("steps", 5, "steps"),), widgets_values=[7, "fixed", 9, "heun"]),
    ]
    converted = made(nodes, [[5, 1, 0, 2, 0, "INT"]])
    assert converted.prompt.keys() == {"2"}
    assert converted.prompt["2"]["inputs"]["steps"] == 9


def test_primitive_nodes_write_into_widgets() -> None:
    nodes = [
        node(1, "PrimitiveNode", widgets_values=[33, "fixed"]),
        node(2, "Sampler", (("steps", 5, "steps"),), widgets_values=[7, "fixed", 9, "heun"]),
    ]
    assert inputs(nodes, [[5, 1, 0, 2, 0, "INT"]], "2")["steps"] == 33


def test_notes_are_no_nodes_and_titles_are_kept() -> None:
    converted = made([node(1, "Note"), node(2, "Source", title="Mine"), node(3, "MarkdownNote")])
    assert converted.prompt.keys() == {"2"}
    assert converted.prompt["2"]["_meta"] == {"title": "Mine"}


def test_links_to_nothing_are_dropped() -> None:
    nodes = [node(1, "Save", (("images", 9),)), node(2, "Save", (("images", 8),))]
    assert "images" not in inputs(nodes, [[8, 77, 0, 2, 0, "IMAGE"]], "1")
    assert "images" not in inputs(nodes, [[8, 77, 0, 2, 0, "IMAGE"]], "2")


def test_the_table_of_links_has_the_last_word() -> None:
    nodes = [node(1, "Source"), node(2, "Save", (("images", None),))]
    assert inputs(nodes, [[8, 1, 0, 2, 0, "IMAGE"]], "2")["images"] == ["1", 0]
    as_objects = [
        {"id": 8, "origin_id": 1, "origin_slot": 0, "target_id": 2, "target_slot": 0, "type": "*"}
    ]
    assert inputs(nodes, as_objects, "2")["images"] == ["1", 0]


def test_texts_lose_comments_and_choose() -> None:
    text = "a {cat|dog} /* no */{x} \\{kept\\} // gone"
    converted = convert(
        {"nodes": [node(1, "Source", widgets_values=[text])]}, TABLE, choose=lambda count: count - 1
    )
    assert converted.prompt["1"]["inputs"]["text"] == "a dog x {kept} "


def test_file_names_are_filled_in() -> None:
    nodes = [
        node(1, "Sampler", widgets_values=[7, "fixed", 9, "heun"], title="First/Pass"),
        node(2, "SaveImage", widgets_values=["%date:yyyy-MM-dd%_%Sampler.steps%_%odd%"]),
    ]
    converted = convert({"nodes": nodes}, TABLE, now=datetime(2031, 2, 3))
    assert converted.prompt["2"]["inputs"]["filename_prefix"] == "2031-02-03_9_%odd%"


def subgraph(**more: Any) -> Json:
    """Sampler 5 and Filter 6, one after the other; inputs `steps` and `amount` of the second."""
    return {
        "id": "sub",
        "name": "Inner",
        "inputs": [{"name": "steps", "linkIds": [1]}, {"name": "amount", "linkIds": [2]}],
        "outputs": [{"name": "image", "linkIds": [4]}],
        "nodes": [
            node(5, "Sampler", (("steps", 1, "steps"),), widgets_values=[7, "fixed", 9, "heun"]),
            node(6, "Filter", (("image", 3), ("amount", 2, "amount")), widgets_values=[0.1]),
        ],
        "links": [
            link(1, -10, 0, 5, 0),
            link(2, -10, 1, 6, 1),
            link(3, 5, 0, 6, 0),
            link(4, 6, 0, -20, 0),
        ],
        **more,
    }


def link(id_: int, origin: int, slot: int, target: int, target_slot: int) -> Json:
    keys = ("id", "origin_id", "origin_slot", "target_id", "target_slot")
    return dict(zip(keys, (id_, origin, slot, target, target_slot), strict=True))


DEFINITIONS = {"subgraphs": [subgraph()]}
OUT = [[90, 1, 0, 2, 0, "IMAGE"]]


def host(**more: Any) -> list[Json]:
    return [node(1, "sub", **more), node(2, "Save", (("images", 90),))]


def test_a_subgraph_becomes_its_nodes_under_the_path() -> None:
    converted = made(host(), OUT, definitions=DEFINITIONS)
    assert converted.prompt.keys() == {"1:5", "1:6", "2"}
    assert converted.prompt["2"]["inputs"]["images"] == ["1:6", 0]
    assert converted.prompt["1:6"]["inputs"] == {"image": ["1:5", 0], "amount": 0.1}
    flattened = next(note for note in converted.notes if note.kind == "flattened")
    assert "'Inner'" in flattened.text


@pytest.mark.parametrize(
    ("more", "steps", "amount"),
    [
        ({"widgets_values": [3, 0.9]}, 3, 0.9),
        ({"widgets_values": [3]}, 3, 0.1),
        ({"widgets_values": [None, 0.9]}, 9, 0.9),
        ({"widgets_values": {"amount": 0.9}}, 9, 0.9),
        (
            {
                "widgets_values": [0.9, 3],
                "properties": {"proxyWidgets": [["-1", "amount"], ["-1", "steps"]]},
            },
            3,
            0.9,
        ),
        ({"widgets_values": [3], "properties": {"proxyWidgets": [["5", "steps"]]}}, 3, 0.1),
    ],
)
def test_three_generations_of_promoted_values(more: Json, steps: int, amount: float) -> None:
    prompt = made(host(**more), OUT, definitions=DEFINITIONS).prompt
    assert prompt["1:5"]["inputs"]["steps"] == steps
    assert prompt["1:6"]["inputs"]["amount"] == amount


def test_a_widget_inside_may_be_promoted_without_an_input() -> None:
    more = {"widgets_values": [77], "properties": {"proxyWidgets": [["5", "seed"]]}}
    prompt = made(host(**more), OUT, definitions=DEFINITIONS).prompt
    assert prompt["1:5"]["inputs"]["seed"] == 77


def test_a_link_into_a_subgraph_replaces_the_promoted_value() -> None:
    nodes = [node(3, "Source"), *host(widgets_values=[3, 0.9])]
    nodes[1]["inputs"] = [{"name": "steps", "type": "INT", "link": 91, "widget": {"name": "steps"}}]
    prompt = made(nodes, [*OUT, [91, 3, 0, 1, 0, "INT"]], definitions=DEFINITIONS).prompt
    assert prompt["1:5"]["inputs"]["steps"] == ["3", 0]


def test_the_outermost_of_nested_values_wins() -> None:
    outer = {
        "id": "outer",
        "name": "Outer",
        "inputs": [{"name": "n", "linkIds": [1]}],
        "outputs": [{"name": "image", "linkIds": [2]}],
        "nodes": [node(8, "sub", (("steps", 1, "steps"),), widgets_values=[4, 0.2])],
        "links": [link(1, -10, 0, 8, 0), link(2, 8, 0, -20, 0)],
    }
    definitions = {"subgraphs": [subgraph(), outer]}
    nodes = [node(1, "outer", widgets_values=[6]), node(2, "Save", (("images", 90),))]
    prompt = made(nodes, OUT, definitions=definitions).prompt
    assert prompt["1:8:5"]["inputs"]["steps"] == 6
    assert prompt["1:8:6"]["inputs"]["amount"] == 0.2
    nodes[0]["widgets_values"] = []
    assert made(nodes, OUT, definitions=definitions).prompt["1:8:5"]["inputs"]["steps"] == 4


def test_nothing_of_a_muted_subgraph_is_run() -> None:
    assert made(host(mode=2), OUT, definitions=DEFINITIONS).prompt.keys() == {"2"}


def test_an_unknown_class_is_named_with_its_place_and_pack() -> None:
    inner = subgraph()
    inner["nodes"][1]["type"] = "Upscaler"
    inner["nodes"][1]["properties"] = {"cnr_id": "some-pack", "ver": "1.2"}
    converted = made(host(), OUT, definitions={"subgraphs": [inner]})
    (unknown,) = converted.unknown
    assert (unknown.node, unknown.class_type) == ("1:6", "Upscaler")
    assert (unknown.subgraph, unknown.pack) == (("Inner",), "some-pack 1.2")
    entry = converted.prompt["1:6"]
    assert entry["class_type"] == "Upscaler"
    assert entry["inputs"] == {"image": ["1:5", 0]}


def test_group_nodes_are_subgraphs_of_before() -> None:
    group = {
        "nodes": [
            {**node(-1, "Sampler", widgets_values=[7, "fixed", 9, "heun"]), "index": 0},
            {**node(-1, "Filter", (("image", None),), widgets_values=[0.1]), "index": 1},
        ],
        "links": [[0, 0, 1, 0, 5, "IMAGE"]],
        "external": [],
    }
    nodes = [
        node(1, "workflow>Pair", widgets_values=[1, "fixed", 2, "euler", 0.7]),
        node(2, "Save", (("images", 90),)),
    ]
    prompt = made(nodes, OUT, extra={"groupNodes": {"Pair": group}}).prompt
    assert prompt["2"]["inputs"]["images"] == ["1:1", 0]
    assert prompt["1:0"]["inputs"] == {"seed": 1, "steps": 2, "sampler": "euler"}
    assert prompt["1:1"]["inputs"] == {"image": ["1:0", 0], "amount": 0.7}


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
