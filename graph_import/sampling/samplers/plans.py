"""Plans that several samplers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from ..base import Evaluation


def staged(steps: Iterable[tuple[float, ...]]) -> tuple[Evaluation, ...]:
    """A plan from the sigmas that each step evaluates the model at."""
    evaluations: list[Evaluation] = []
    for step, stages in enumerate(steps):
        for stage, sigma in enumerate(stages):
            is_end = stage == len(stages) - 1
            evaluations.append(
                Evaluation(index=len(evaluations), step=step, sigma=sigma, is_step_end=is_end)
            )
    return tuple(evaluations)


def first_and_last(sigmas: tuple[float, ...]) -> tuple[Evaluation, ...]:
    """At each step's first sigma, and again at its last unless that is 0."""
    return with_second(sigmas, lambda sigma, following: following)


def with_second(
    sigmas: tuple[float, ...], second: Callable[[float, float], float]
) -> tuple[Evaluation, ...]:
    """At each step's first sigma; unless it ends at 0, also at what `second` makes of both."""
    return staged(
        (sigma,) if following == 0.0 else (sigma, second(sigma, following))
        for sigma, following in pairwise(sigmas)
    )
