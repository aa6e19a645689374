"""An op body from a function of one call: calls run one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

from ..values import Value
from .base import OpBody, OpCall, OpContext, OpResult

Compute = Callable[[OpCall], tuple[Value, ...]]


def each_call(compute: Compute) -> OpBody:
    """The body that gives `compute`'s outputs for each call, and stops between two if cancelled."""

    @wraps(compute)
    def body(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
        results = []
        for call in calls:
            context.check_cancelled()
            results.append(OpResult(outputs=compute(call)))
        return results

    return body
