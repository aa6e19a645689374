"""Measured seconds: to load a model, to switch its patches, to run one call of an op.

Guesses until measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...graph_import.handles import ModelKey
from .batch_costs import BatchCosts
from .estimates import Estimate

READ_BYTES_PER_S: Final = 1e9
LOAD_START_S: Final = 0.05
GUESSED_SWITCH_S: Final = 0.1
GUESSED_CALL_S: Final = {
    "text_encode": 0.05,
    "text_encode_each": 0.05,
    "denoise": 0.2,
    "denoise_hooked": 0.2,
    "vae_decode": 0.3,
    "vae_encode": 0.3,
}
GUESSED_OTHER_CALL_S: Final = 0.01  # most others have no weights
MAX_SHAPES: Final = 2000  # with costs of their own


CallProfile = Estimate  # of one call of an op on a model, alone or in a batch
Shape = tuple[tuple[int, ...], ...]  # of what a call reads: see `batching.shape_of`


@dataclass(slots=True)
class Profiles:
    """What things cost, by model key."""

    _loads: dict[ModelKey, Estimate] = field(default_factory=dict)
    _switches: dict[ModelKey, Estimate] = field(default_factory=dict)
    _calls: dict[tuple[str, ModelKey | None], CallProfile] = field(default_factory=dict)
    _batches: dict[tuple[str, ModelKey | None, Shape], BatchCosts] = field(default_factory=dict)

    def load(self, key: ModelKey) -> Estimate:
        """Of reading a model from its file to the device."""
        if key not in self._loads:
            guess_s = LOAD_START_S + key.size_bytes / READ_BYTES_PER_S
            self._loads[key] = Estimate(guess_s)
        return self._loads[key]

    def switch(self, key: ModelKey) -> Estimate:
        """Of taking a loaded model's patches off and putting others on."""
        if key not in self._switches:
            self._switches[key] = Estimate(GUESSED_SWITCH_S)
        return self._switches[key]

    def call(self, op: str, key: ModelKey | None) -> CallProfile:
        """Of one call of `op` with the model `key`; equal arguments give the same object."""
        if (op, key) not in self._calls:
            self._calls[op, key] = Estimate(GUESSED_CALL_S.get(op, GUESSED_OTHER_CALL_S))
        return self._calls[op, key]

    def batches(self, op: str, key: ModelKey | None, shape: Shape) -> BatchCosts:
        """Of batches of such calls that read values of these shapes.

        Clients choose shapes, so only those that were asked for last are kept.
        """
        costs = self._batches.pop((op, key, shape), None) or BatchCosts()
        self._batches[op, key, shape] = costs
        if len(self._batches) > MAX_SHAPES:
            del self._batches[next(iter(self._batches))]
        return costs


@dataclass(slots=True)
class OpenWork:
    """The calls that a request has still to make, by their profiles."""

    num_calls: int = 0
    _counts: dict[CallProfile, int] = field(default_factory=dict)

    def add(self, profile: CallProfile) -> None:
        """One more call to make."""
        self.num_calls += 1
        self._counts[profile] = self._counts.get(profile, 0) + 1

    def remove(self, profile: CallProfile) -> None:
        """One call was made."""
        self.num_calls -= 1
        self._counts[profile] -= 1

    def count(self, profile: CallProfile) -> int:
        """How many calls of this kind are left."""
        return self._counts.get(profile, 0)

    @property
    def seconds_s(self) -> float:
        """Estimated seconds of all of it, one call after another."""
        return sum(profile.seconds_s * count for profile, count in self._counts.items())
