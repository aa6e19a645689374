"""Nodes that take or give what steers a denoiser give what ComfyUI's gave."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.goldens import TESTS, golden_folder

import conformance.case
from conformance.case import exceptions_at
from conformance.cond_nodes import cases
from conformance.node_case import compared, recorded_cases

FOLDER = TESTS / "goldens" / "steering"
KEPT = dict(recorded_cases(FOLDER))


@pytest.mark.parametrize("name", KEPT)
def test_a_node_gives_what_comfyui_gave(name: str) -> None:
    outcome = compared(FOLDER, KEPT[name])
    assert outcome.passes, outcome


def test_all_recorded_cases_come_out_alike_or_are_listed() -> None:
    reasons = exceptions_at(Path(conformance.case.__file__).with_name("exceptions.toml"))
    failed = [
        case.name
        for case in cases(golden_folder("full"))
        if case.name not in reasons and not case.run().passes
    ]
    assert failed == []
