"""Users' patterns run in a process that is ended when they take too long."""

from __future__ import annotations

import pytest
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.ops import regexes

from ...kit.op_calls import run_op

FLAGS = {"case_insensitive": True, "multiline": False, "dotall": False}


def test_a_pattern_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes, "TIMEOUT_S", 0.5)
    endless = {"string": "a" * 40 + "b", "regex_pattern": "(a+)+$", **FLAGS}
    with pytest.raises(NodeFailed, match="longer than"):
        run_op("regex_match", endless)


def test_a_replacement_that_makes_no_sense_is_told() -> None:
    args = {"string": "a", "regex_pattern": "a", "replace": r"\7", "count": 0, **FLAGS}
    with pytest.raises(NodeFailed, match="makes no sense"):
        run_op("regex_replace", args)


def test_too_long_a_result_is_refused() -> None:
    args = {"string": "a" * 100_000, "regex_pattern": "a", "replace": "b" * 99, "count": 0, **FLAGS}
    with pytest.raises(NodeFailed, match="more than"):
        run_op("regex_replace", args)
