"""Our answers to prompts that a real ComfyUI was given: same types, words, values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nodeloom.graph_import.comfy.api_format import prompt_of
from nodeloom.graph_import.comfy.problems import node_errors, rejection_body
from nodeloom.graph_import.comfy.validate import validate
from nodeloom.graph_import.errors import ImportRejected

from ..known_files import NoFiles
from ..probes import recorded_registry

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "refusals.json").read_text())["cases"]
CYCLES = ("two-node loop", "self loop")


def answer(request: Any) -> dict[str, Any]:
    """What a server would answer and store, without the ids."""
    targets = request.get("partial_execution_targets") if isinstance(request, dict) else None
    try:
        valid = validate(prompt_of(request), recorded_registry(), NoFiles(), targets)
    except ImportRejected as rejected:
        return {"status": 400, "answer": rejection_body(rejected)}
    return {
        "status": 200,
        "node_errors": node_errors(valid.problems, valid.dependent_outputs),
        "stored_prompt": valid.prompt.to_json(),
        "roots": list(valid.roots),
    }


def unordered(answer: dict[str, Any]) -> dict[str, Any]:
    """The original's order of errors and outputs changes from start to start."""
    errors = answer.get("answer", answer).get("node_errors", {})
    for entry in errors.values():
        entry["errors"].sort(key=lambda error: error["details"])
        entry["dependent_outputs"].sort()
    if "roots" in answer:
        answer["roots"].sort()
    top = answer.get("answer", {}).get("error", {})
    if top:
        top["details"] = sorted(top["details"].split("\n"))
    return answer


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{case['scenario']}:{case['label'] or index}")
        for index, case in enumerate(RECORDED)
        if case["label"] not in CYCLES
    ],
)
def test_the_answer_is_the_recorded_one(case: dict[str, Any]) -> None:
    expected = {
        key: case[key]
        for key in ("status", "answer", "node_errors", "stored_prompt", "roots")
        if key in case
    }
    given = answer(case["request"])
    assert unordered({key: given.get(key) for key in expected}) == unordered(expected)


@pytest.mark.parametrize("label", CYCLES)
def test_a_cycle_is_named_where_the_original_says_nothing(label: str) -> None:
    case = next(case for case in RECORDED if case["label"] == label)
    given = answer(case["request"])["answer"]
    assert given["error"] == case["answer"]["error"]
    (entry,) = given["node_errors"].values()
    (error,) = entry["errors"]
    assert error["type"] == "dependency_cycle"
    assert error["extra_info"]["cycle"] in (["2", "1", "2"], ["1", "1"])


def test_the_recordings_cover_every_kind_of_problem_that_we_report() -> None:
    kinds = {
        error["type"]
        for case in RECORDED
        for entry in (case.get("answer") or case).get("node_errors", {}).values()
        for error in entry["errors"]
    }
    assert kinds == {
        "required_input_missing",
        "bad_linked_input",
        "return_type_mismatch",
        "invalid_input_type",
        "value_smaller_than_min",
        "value_bigger_than_max",
        "value_not_in_list",
        "custom_validation_failed",
        "exception_during_validation",
        "exception_during_inner_validation",
    }
