"""Placeholders: what they refuse, and what makes a value structural."""

from __future__ import annotations

import copy

import pytest
from nodeloom.graph_import.dsl import CompositionError, Fault, Placeholder, Workflow, structural

USES = {
    "bool": lambda p: 1 if p else 2,
    "not": lambda p: not p,
    "equal": lambda p: p == 1,
    "unequal": lambda p: p != 1,
    "less": lambda p: p < 1,
    "a place in a sequence": lambda p: max([p, 1]),
    "len": len,
    "iteration": list,
    "unpacking": lambda p: [*p],
    "index": lambda p: p[0],
    "in": lambda p: 3 in p,
    "float": float,
    "round": round,
    "str": str,
    "format": lambda p: f"a {p}",
    "concatenation": lambda p: "a " + p,
    "sum": lambda p: p + 1,
    "right sum": lambda p: 1 + p,
    "half": lambda p: p // 2,
    "power": lambda p: p**2,
    "negative": lambda p: -p,
    "abs": abs,
}


@pytest.fixture
def flow() -> Workflow:
    return Workflow("tested")


def an_input(flow: Workflow, type_: str = "INT", default: object = 3) -> Placeholder:
    placeholder = flow._recording.add_input("given", type_, default, flow.place)
    assert isinstance(placeholder, Placeholder)
    return placeholder


@pytest.mark.parametrize("use", USES)
def test_a_use_as_data_is_refused_in_words(use: str, flow: Workflow) -> None:
    with pytest.raises(CompositionError) as caught:
        USES[use](an_input(flow))  # type: ignore[no-untyped-call]  # a lambda
    assert caught.value.fault is Fault.USED_AS_DATA
    assert "structural(given)" in caught.value.message
    assert caught.value.place.file == __file__
    assert caught.value.details["received"] == "INT"


@pytest.mark.parametrize("type_", ["FLOAT", "STRING", "BOOLEAN"])
def test_only_an_int_has_an_index(type_: str, flow: Workflow) -> None:
    default = {"FLOAT": 0.5, "STRING": "3", "BOOLEAN": True}[type_]
    with pytest.raises(CompositionError) as caught:
        range(an_input(flow, type_, default))  # type: ignore[call-overload]  # that is the point
    assert caught.value.fault is Fault.USED_AS_DATA


@pytest.mark.parametrize(
    ("type_", "value"), [("INT", 3), ("FLOAT", 0.5), ("STRING", "heun"), ("BOOLEAN", True)]
)
def test_a_structural_value_is_the_value(type_: str, value: object, flow: Workflow) -> None:
    assert structural(an_input(flow, type_, value)) == value


def test_an_int_input_is_a_whole_number_for_ranges_and_slices(flow: Workflow) -> None:
    steps = an_input(flow)
    assert list(range(steps)) == [0, 1, 2]
    assert "abcdef"[:steps] == "abc"
    assert int(steps) == 3


def test_what_is_no_placeholder_is_structural_as_it_is() -> None:
    assert structural(4) == 4


def test_placeholders_are_told_apart_by_identity(flow: Workflow) -> None:
    first = an_input(flow)
    assert {first: 1}[first] == 1
    assert first in [first]
    assert copy.copy([first])[0] is first


def test_a_picture_is_never_structural(flow: Workflow) -> None:
    image = flow._recording.add_input("image", "IMAGE", "cat.png", flow.place)
    with pytest.raises(CompositionError, match="only when the workflow runs"):
        structural(image)


def test_the_repr_says_what_it_stands_for(flow: Workflow) -> None:
    assert repr(an_input(flow)) == "<INT input 'given' of workflow 'tested'>"
