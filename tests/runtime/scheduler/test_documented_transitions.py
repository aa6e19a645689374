"""The table of node states in docs/architecture.md is the one in the code."""

from __future__ import annotations

from pathlib import Path

from nodeloom.runtime.scheduler.node_state import NODE_TRANSITIONS

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"


def test_the_documented_transitions_are_those_of_the_code() -> None:
    rows = [f"| {a} | {b} | {why} |" for (a, b), why in NODE_TRANSITIONS.items()]
    table = "\n".join(["| from | to | because |", "|---|---|---|", *rows, ""])
    assert table in PAGE.read_text(encoding="utf-8")
