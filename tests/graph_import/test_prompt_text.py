"""Weights in texts against ComfyUI's, and what no text may break."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.goldens import each_golden_set, load_json
from nodeloom.graph_import.prompt_text import MAX_NESTING, parse_weights


@each_golden_set
def test_segments_and_weights(golden_set: str) -> None:
    prompts = load_json(golden_set, "prompts.json")
    for name, text in prompts["prompts"].items():
        got = [(segment.text, segment.weight) for segment in parse_weights(text)]
        wanted = [(part, float(weight)) for part, weight in prompts["token_weights"][name]]
        assert [part for part, _ in got] == [part for part, _ in wanted], name
        for (_, ours), (_, theirs) in zip(got, wanted, strict=True):
            assert ours == theirs or abs(ours - theirs) <= 1e-9, name


@given(st.text(alphabet=r"()\.15ab ", max_size=60))
def test_without_numbers_only_parentheses_and_backslashes_go(text: str) -> None:
    letters = "".join(segment.text for segment in parse_weights(text))
    assert [c for c in letters if c not in "()\\"] == [c for c in text if c not in "()\\"]
    left = iter(text)
    assert all(c in left for c in letters), "the segments are a subsequence of the text"


@given(st.text(alphabet="abc ,.:é\n", min_size=1))
def test_text_without_parentheses_is_one_segment(text: str) -> None:
    (segment,) = parse_weights(text)
    assert (segment.text, segment.weight) == (text, 1.0)


def test_nesting_ends_at_the_limit() -> None:
    depth = MAX_NESTING + 3
    (segment,) = parse_weights("(" * depth + "a" + ")" * depth)
    assert segment.text == "(((a)))"
    assert segment.weight == pytest.approx(1.1**MAX_NESTING)


def test_escapes_are_undone_at_every_depth() -> None:
    found = [(s.text, s.weight) for s in parse_weights(r"\(a\) (b \(c\):2) (d\)")]
    assert found == [("(a) ", 1.0), ("b (c)", 2.0), (" ", 1.0), ("(d)", 1.0)]
