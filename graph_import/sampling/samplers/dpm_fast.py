"""DPM-Solver in t = -log sigma: single steps of order 1 to 3, a given number of evaluations.

Source: DPM-Solver (arXiv 2206.00927), algorithms 1, 2 and section 3.4 (DPM-Solver-fast).
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

from ..base import Array, Course, Estimate, Evaluation, Noise, Sampler, SamplerState


class DpmFast(Sampler, frozen=True, kw_only=True):
    """As many evaluations as there are steps, evenly over t, down to the last sigma above 0."""

    name: str = "dpm_fast"

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """One evaluation is one step; up to three of them make a step of the solver."""
        sigmas = [sigma for stages in _stages(course) for sigma in stages[:-1]]
        return tuple(
            Evaluation(index=index, step=index, sigma=sigma, is_step_end=True)
            for index, sigma in enumerate(sigmas)
        )

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """The history: the direction of noise at the solver step's start."""
        done = evaluation.index
        for stages in _stages(course):
            if done < len(stages) - 1:
                break
            done -= len(stages) - 1
        x = state.x if state.x_eval is None else state.x_eval
        eps = (x - estimate.denoised) * (1.0 / evaluation.sigma)
        first = state.history[0] if state.history else eps
        moved = solver_stage(state.x, first, eps, stages, done)
        if done == len(stages) - 2:
            return SamplerState(x=moved)
        return SamplerState(x=state.x, x_eval=moved, history=(first,))


def solver_stage(x: Array, first: Array, eps: Array, stages: tuple[float, ...], done: int) -> Array:
    """From x, at stages[0], to the next of `stages`, which are evenly spaced in t.

    `first` and `eps` are the directions at stages[0] and at stages[done].
    """
    order = len(stages) - 1
    share = (done + 1) / order
    target = stages[done + 1]
    h = math.log(stages[0] / target)
    if h == 0.0:
        return x
    moved = x - first * (target * math.expm1(h))
    if done == 0:
        return moved
    known = done / order  # where `eps` is
    if order == 2:
        weight = math.expm1(h) / (2.0 * known)
    else:
        weight = share / known * (math.expm1(h) / h - 1.0)
    return moved - (eps - first) * (target * weight)


@lru_cache(maxsize=64)
def _stages(course: Course) -> list[tuple[float, ...]]:
    """The sigmas of each step of the solver: where it evaluates, and where it ends."""
    positive = [sigma for sigma in course.sigmas if sigma > 0.0]
    count = course.num_steps
    if count < 1:
        return []
    num_steps = count // 3 + 1
    orders = [3] * (num_steps - 1) + [count % 3]
    if count % 3 == 0:
        orders = [3] * (num_steps - 2) + [2, 1]
    start, end = -math.log(positive[0]), -math.log(positive[-1])
    times = [start + (end - start) * k / num_steps for k in range(num_steps + 1)]
    return [
        tuple(math.exp(-(a + (b - a) * k / order)) for k in range(order + 1))
        for (a, b), order in zip(pairwise(times), orders, strict=True)
    ]
