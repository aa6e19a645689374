"""An estimate of something that is measured again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WEIGHT_OF_NEWEST: Final = 0.3  # of the moving average


@dataclass(slots=True, eq=False)
class Estimate:
    """Seconds of something that happens again and again: a moving average."""

    seconds_s: float
    is_measured: bool = False

    def learn(self, measured_s: float) -> None:
        """Take in a measurement; the first one replaces the guess."""
        if self.is_measured:
            self.seconds_s += WEIGHT_OF_NEWEST * (measured_s - self.seconds_s)
        else:
            self.seconds_s = measured_s
            self.is_measured = True
