"""The body of a node of a model of a user's own: its arguments and outputs are those declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..values import Value
from .arguments import loaded
from .base import OpCall, OpContext, OpResult


def user_model(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The declared inputs -> the declared outputs. Raises: NodeFailed: the model's own fault."""
    model = loaded(context)
    results = model.execute_batch([call.args for call in calls])
    names = [output.name for output in model.outputs]
    return [
        OpResult(outputs=tuple(cast(Value, result[name]) for name in names)) for result in results
    ]
