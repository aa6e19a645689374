"""Published schedules; where a point of a table isn't known, its schedules are refused."""

from __future__ import annotations

import pytest
from nodeloom.graph_import.sampling.tables import align_your_steps, optimal_steps


@pytest.mark.parametrize(
    ("model_type", "steps"), [("Chroma", 13), ("Chroma", 40), ("Wan", 21)], ids=str
)
def test_a_schedule_of_unknown_points_is_refused(model_type: str, steps: int) -> None:
    with pytest.raises(ValueError, match=rf"{model_type} in {steps} steps: point \d+ of"):
        optimal_steps(model_type, steps, 1.0)


def test_only_the_points_of_the_share_that_is_sampled_must_be_known() -> None:
    sigmas = optimal_steps("Chroma", 12, 0.5)
    assert len(sigmas) == 7
    with pytest.raises(ValueError, match="is not known"):
        optimal_steps("Chroma", 12, 1.0)


def test_a_table_of_as_many_steps_is_taken_as_it_is() -> None:
    assert optimal_steps("Chroma", 20, 1.0)[:2] == pytest.approx((0.992, 0.988))
    assert align_your_steps("SD1", 10, 1.0)[-2:] == pytest.approx((0.151523262, 0.0))


def test_nothing_is_sampled_without_a_share() -> None:
    assert align_your_steps("SVD", 10, 0.0) == ()
