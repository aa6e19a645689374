"""What batches of calls take, by their size; and which size is worth it.

Measured for one op on one model and one shape of inputs. A larger batch is tried where it has not
been measured and half of it was found to pay, and again after a while, since machines change.
Source: LegoDiffusion (arXiv 2604.08123), section 5.1 (profiled B_max); the trials are ours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

MIN_GAIN: Final = 0.005  # of a call in half the batch, by each call: each delays the first
NEAR_BEST: Final = 1.01  # if all calls are nearly as cheap, the smaller batch: it ends sooner
TRIED: Final = (2, 4, 8, 16, 32, 64)
RECENT: Final = 16  # of whose seconds the least count
TRY_AGAIN_AFTER: Final = 16  # batches: sizes measured at different times hardly compare


@dataclass(slots=True)
class _Measured:
    """Batches of one size: what the last ones took, but for the first of each process.

    That one also pays for what libraries prepare for a size. What else goes on in a machine only
    makes a batch slower, and for a while: so the least of several seconds are its own, and those of
    two sizes compare.
    """

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    prepared: set[str] = field(default_factory=set)  # incarnations of executors
    last_at: int = 0

    def learn(self, seconds_s: float, incarnation: str, at: int) -> None:
        self.last_at = at
        if incarnation in self.prepared:
            self.recent.append(seconds_s)
        self.prepared.add(incarnation)

    @property
    def seconds_s(self) -> float:
        return min(self.recent)


@dataclass(slots=True)
class BatchCosts:
    """Seconds of a batch, by how many calls it has."""

    _sizes: dict[int, _Measured] = field(default_factory=dict)
    _num_batches: int = 0
    _answers: dict[int, int] = field(default_factory=dict)  # best sizes, until the next batch

    def learn(self, size: int, seconds_s: float, incarnation: str) -> None:
        """A batch of `size` calls took an executor so long."""
        self._num_batches += 1
        self._answers.clear()
        self._sizes.setdefault(size, _Measured()).learn(seconds_s, incarnation, self._num_batches)

    def seconds_s(self, size: int) -> float | None:
        """Of a batch of `size` calls: measured, or on the line through the two nearest sizes.

        None where fewer than two sizes are known, and none of them is this one.
        """
        known = [n for n in sorted(self._sizes) if self._is_known(n)]
        if size in known:
            return self._sizes[size].seconds_s
        if len(known) < 2:
            return None
        index = min(max(1, bisect_left(known, size)), len(known) - 1)
        below, above = known[index - 1], known[index]
        below_s, above_s = (self._sizes[n].seconds_s for n in (below, above))
        return max(0.0, below_s + (above_s - below_s) * (size - below) / (above - below))

    def best_size(self, num_ready: int) -> int:
        """How many of so many ready calls should go as one batch."""
        if num_ready not in self._answers:
            self._answers[num_ready] = self._best_size(num_ready)
        return self._answers[num_ready]

    def _best_size(self, num_ready: int) -> int:
        known = [n for n in self._sizes if self._is_known(n)]
        largest, limit = 1, num_ready
        too_dear = set()
        for size in takewhile(lambda size: size <= num_ready, TRIED):
            if size in known and self._pays(size, than=largest):
                largest = size
            elif size in known:
                too_dear.add(size)
                limit = min(limit, size - 1)
            elif limit >= size > max(known, default=0):
                return size  # a trial
        # Up to the next size that would be tried, one may go by the line.
        limit = min(limit, max([2 * largest - 1, *known]))
        costs = {
            n: cost_s
            for n in range(1, num_ready + 1)
            if (n <= limit or n in known)
            and n not in too_dear
            and (cost_s := self.seconds_s(n)) is not None
        }
        return _first_of_cheapest(num_ready, costs) if 1 in costs else largest

    def _pays(self, size: int, *, than: int) -> bool:
        smaller, larger = self.seconds_s(than), self.seconds_s(size)
        if smaller is None or larger is None:
            return True
        return larger / size <= (1 - MIN_GAIN * size) * smaller / than

    def _is_known(self, size: int) -> bool:
        measured = self._sizes.get(size)
        if measured is None or not measured.recent:
            return False
        return size == 1 or not self._is_stale(measured)

    def _is_stale(self, measured: _Measured) -> bool:
        return self._num_batches - measured.last_at > TRY_AGAIN_AFTER


def _first_of_cheapest(num_calls: int, costs: dict[int, float]) -> int:
    """The first batch of the cheapest way to make so many calls, by the seconds of each size."""
    totals_s = [0.0]  # for the first calls, at best
    for num_made in range(1, num_calls + 1):
        ways = (cost_s + totals_s[num_made - n] for n, cost_s in costs.items() if n <= num_made)
        totals_s.append(min(ways))
    limit_s = NEAR_BEST * totals_s[num_calls]
    return next(n for n, cost_s in costs.items() if cost_s + totals_s[num_calls - n] <= limit_s)
