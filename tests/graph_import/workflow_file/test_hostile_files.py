"""Files that are made to do harm, or that packs write in ways of their own."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kit.ui_workflows import TABLE, made, node
from nodeloom.graph_import.workflow_file import NodeTable, WorkflowFileProblem, convert

SAVE_AND_TEXT = NodeTable(
    {
        "SaveImage": {"input": {"required": {"filename_prefix": ["STRING", {}]}}},
        "Text": {"input": {"required": {"text": ["STRING", {"dynamicPrompts": True}]}}},
    }
)


def test_a_later_node_does_not_take_the_place_of_one_with_its_fresh_id() -> None:
    converted = made([node("1-2", "Source"), node(1, "Source"), node(1, "Source")])
    assert set(converted.prompt) == {"1-2", "1", "1-3"}


def test_lists_that_an_unknown_node_stores_by_name_are_values() -> None:
    stored = {"none": [], "nested": [[1], 2], "pair": ["1", 0], "text": "kept"}
    converted = made([{"id": 1, "type": "Odd", "widgets_values": stored}])
    assert converted.prompt["1"]["inputs"] == {
        "none": {"__value__": []},
        "nested": {"__value__": [[1], 2]},
        "pair": {"__value__": ["1", 0]},
        "text": "kept",
    }


@pytest.mark.parametrize("document", [None, [], 3, "text"])
def test_what_is_no_object_is_refused(document: Any) -> None:
    with pytest.raises(WorkflowFileProblem, match="no JSON object"):
        convert(document, TABLE)


def test_a_slot_below_zero_of_a_bypassed_node_leads_nowhere() -> None:
    bypassed = {"id": 1, "type": "Filter", "mode": 4, "inputs": [{"name": "a", "type": "A"}]}
    saver = node(2, "Save", (("images", 1),))
    assert "images" not in made([bypassed, saver], [[1, 1, -5, 2, 0, "A"]]).prompt["2"]["inputs"]


def test_placeholders_in_every_name_are_filled_in_in_time() -> None:
    nodes = [{"id": i, "type": "SaveImage", "widgets_values": ["%no.such%"]} for i in range(10_000)]
    started = time.monotonic()
    assert len(convert({"nodes": nodes}, SAVE_AND_TEXT).prompt) == 10_000
    assert time.monotonic() - started < 30


def test_bypassed_nodes_of_many_slots_are_passed_in_time() -> None:
    count = 10_000
    bypassed = {
        "id": "b",
        "type": "Odd",
        "mode": 4,
        "inputs": [{"name": "a", "type": "A"}] * count,
        "outputs": [{"name": "b", "type": "B"}] * count,
    }
    savers = [node(i, "Save", (("images", i),)) for i in range(count)]
    links = [[i, "b", i, i, 0, "B"] for i in range(count)]
    started = time.monotonic()
    assert len(made([bypassed, *savers], links).prompt) == count
    assert time.monotonic() - started < 30


def test_alternatives_may_nest_without_end() -> None:
    text = "{a" * 1_000_000
    started = time.monotonic()
    document = {"nodes": [{"id": 1, "type": "Text", "widgets_values": [text]}]}
    converted = convert(document, SAVE_AND_TEXT)
    assert converted.prompt["1"]["inputs"]["text"] == "a" * 1_000_000
    assert time.monotonic() - started < 30
