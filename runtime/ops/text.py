"""The body of the node that turns a text into conditioning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..values import Conditioning
from .arguments import argument, loaded
from .base import OpCall, OpContext, OpResult


def text_encode(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """text STRING -> CONDITIONING. Texts of a batch share forwards, but for strict mode."""
    model = loaded(context)
    texts = [{"text": argument(call, "text", str)} for call in calls]
    context.check_cancelled()
    if context.is_strict:
        given = []
        for text in texts:
            context.check_cancelled()
            given.append(model.execute(**text))
    else:
        given = model.execute_batch(texts)
    return [OpResult(outputs=(cast(Conditioning, one["conditioning"]),)) for one in given]
