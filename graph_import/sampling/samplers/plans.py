"""Plans that several samplers share."""

from __future__ import annotations

from ..base import Evaluation


def one_per_step(sigmas: tuple[float, ...]) -> tuple[Evaluation, ...]:
    """One evaluation per step, at the step's first sigma; fewer than two sigmas make no step."""
    return tuple(
        Evaluation(index=step, step=step, sigma=sigma, is_step_end=True)
        for step, sigma in enumerate(sigmas[:-1])
    )
