"""Subgraphs and group nodes as prompts. Source: spec importer-rules.md, sections 8, 10, 11."""

from __future__ import annotations

import pytest
from kit.ui_workflows import DEFINITIONS, OUT, Json, host, link, made, node, subgraph


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
