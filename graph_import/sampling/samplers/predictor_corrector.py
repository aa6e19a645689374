"""What predictor-corrector samplers share: a step's weights, corrected once its end is evaluated.

A step from the state x predicts the next one, keep * x + sum of weight * estimate. When the model
has been evaluated there, the step could be done better; as both ways are linear, the difference is
a sum over the estimates, too, and the state before the step needn't be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest


def correction(corrector: Sequence[float], predictor: Sequence[float]) -> tuple[float, ...]:
    """What the estimates weigh in the way from the predicted to the corrected state.

    Args:
        corrector: the corrector's weights of the estimate at the step's end, at its start, before.
        predictor: the predictor's, from that at the step's start on.
    """
    pairs = zip_longest(corrector, (0.0, *predictor), fillvalue=0.0)
    return tuple(theirs - ours for theirs, ours in pairs)
