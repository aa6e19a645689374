"""Nodes that are lowered and run as in a prompt give what ComfyUI's gave."""

from __future__ import annotations

from pathlib import Path

import pytest

import conformance.case
from conformance.case import exceptions_at
from conformance.node_case import recorded_cases
from conformance.nodes import cases, run_case

from ...kit.goldens import golden_folder
from .node_goldens import FOLDER

KEPT = dict(recorded_cases(FOLDER))
CLASSES = sorted({case["node"] for case in KEPT.values()})


@pytest.mark.parametrize("class_type", CLASSES)
def test_a_class_gives_what_comfyui_gave(class_type: str) -> None:
    for name, case in KEPT.items():
        if case["node"] == class_type:
            outcome = run_case(FOLDER, case)
            assert outcome.passes, f"{name}: {outcome}"


def test_all_recorded_cases_come_out_alike_or_are_listed() -> None:
    reasons = exceptions_at(Path(conformance.case.__file__).with_name("exceptions.toml"))
    failed = [
        case.name
        for case in cases(golden_folder("full"))
        if case.name not in reasons and not case.run().passes
    ]
    assert failed == []
