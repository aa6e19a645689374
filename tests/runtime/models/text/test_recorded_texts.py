"""Text encoders of every family give the recorded numbers of ComfyUI's."""

from __future__ import annotations

import pytest
from kit.goldens import KEPT, TESTS
from kit.small_encoders import MODELS, PARTS
from kit.text_goldens import RECORDED

from conformance import clip, text_models
from conformance.case import Case

TEXTS = list(clip.cases(KEPT))


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case.name)
def test_a_kept_text_is_encoded_as_comfyui_encodes_it(case: Case) -> None:
    outcome = case.run()
    assert outcome.passes, outcome


def test_every_recorded_model_and_part_has_a_kept_text() -> None:
    assert {case.name.split("/")[1] for case in TEXTS} == {*MODELS, *PARTS, "bare"}


@pytest.mark.parametrize(
    "case", list(text_models.cases(TESTS / "goldens")), ids=lambda case: case.name
)
def test_a_kept_forward_gives_the_recorded_vectors(case: Case) -> None:
    outcome = case.run()
    assert outcome.passes, outcome


def test_every_kind_of_transformer_has_a_kept_forward() -> None:
    cases = list(text_models.cases(TESTS / "goldens"))
    assert [case.name for case in cases] == [f"models/{name}" for name in RECORDED]
