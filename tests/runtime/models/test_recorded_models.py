"""One forward pass of every kind of model gives the recorded numbers of ComfyUI's classes."""

from __future__ import annotations

import pytest
from kit.goldens import FULL, TESTS

from conformance.case import Case
from conformance.models import RECORDED, cases

KEPT = TESTS / "goldens"


@pytest.mark.parametrize("case", list(cases(KEPT)), ids=lambda case: case.name)
def test_a_kept_case_passes(case: Case) -> None:
    outcome = case.run()
    assert outcome.passes, outcome


def test_every_kind_of_model_has_a_kept_case() -> None:
    assert [case.name for case in cases(KEPT)] == [f"models/{name}" for name in RECORDED]


@pytest.mark.parametrize("name", ["sd3", "sd35_medium"])
def test_all_recorded_rows_pass(name: str) -> None:
    if not FULL.is_dir():
        pytest.skip(f"the full goldens are not at {FULL}: set NODELOOM_GOLDENS")
    (case,) = (one for one in cases(FULL) if one.name == f"models/{name}")
    outcome = case.run()
    assert outcome.passes, outcome
