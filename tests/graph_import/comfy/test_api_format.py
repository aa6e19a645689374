from __future__ import annotations

from typing import Any

import pytest
from nodeloom.graph_import.comfy.api_format import (
    MAX_DEPTH,
    MAX_NODES,
    BrokenLink,
    Link,
    Literal,
    parse_prompt,
    prompt_of,
)
from nodeloom.graph_import.errors import ImportRejected

from ..prompts import node, text_to_image


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_inputs_are_links_literals_or_broken_links() -> None:
    inputs = {
        "link": ["4", 1],
        "last": ["4", -1],
        "number": 3,
        "wrapped": {"__value__": ["4", 1]},
        "short": ["4"],
        "text slot": ["4", "1"],
        "float slot": ["4", 1.0],
        "number id": [4, 1],
    }
    parsed = parse_prompt({"1": node("KSampler", **inputs)}).nodes["1"].inputs
    assert parsed == {
        "link": Link(node_id="4", slot=1),
        "last": Link(node_id="4", slot=-1),
        "number": Literal(value=3),
        "wrapped": Literal(value=["4", 1]),
        "short": BrokenLink(value=["4"]),
        "text slot": BrokenLink(value=["4", "1"]),
        "float slot": BrokenLink(value=["4", 1.0]),
        "number id": BrokenLink(value=[4, 1]),
    }


def test_what_a_client_sent_comes_back_with_unknown_keys_in_order() -> None:
    prompt = text_to_image()
    prompt["9"] = {"_meta": {"title": "Save"}, **prompt["9"], "is_changed": [1.0]}
    prompt["x"] = {"class_type": "KSampler", "note": None}
    assert repr(parse_prompt(prompt).to_json()) == repr(prompt)


def test_a_literal_list_stays_wrapped_so_that_it_is_no_link_when_sent_again() -> None:
    prompt = {"1": node("X", value={"__value__": ["4", 1]})}
    assert parse_prompt(prompt).to_json() == prompt


@pytest.mark.parametrize("body", [None, [1], {}, {"client_id": "x"}, "prompt"])
def test_a_body_without_prompt_is_refused(body: Any) -> None:
    with pytest.raises(ImportRejected) as caught:
        prompt_of(body)
    assert caught.value.type == "no_prompt"


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        (None, "NoneType"),
        ([1, 2], "list"),
        ({"7": "class_type"}, "'#7'"),
        ({"7": {"inputs": {}}}, "'#7'"),
        ({"7": node("X", deep=nested(MAX_DEPTH + 1))}, "'#7'"),
        ({"7": node("X", half="\ud800")}, "'#7'"),
        ({"\udfff": node("X")}, "\\udfff"),
        ({"7": node("X", huge=10**400)}, "'#7'"),
        ({str(index): node("X") for index in range(MAX_NODES + 1)}, str(MAX_NODES)),
    ],
)
def test_what_is_no_prompt_or_over_a_limit_is_refused_by_name(prompt: Any, named: str) -> None:
    with pytest.raises(ImportRejected) as caught:
        parse_prompt(prompt)
    assert caught.value.type == "invalid_prompt"
    assert named in caught.value.text
    assert caught.value.message


def test_values_just_within_the_limits_pass() -> None:
    prompt = {"7": node("X", deep=nested(MAX_DEPTH - 2), seed=2**64 - 1, smile="\U0001f600")}
    assert parse_prompt(prompt).to_json() == prompt
