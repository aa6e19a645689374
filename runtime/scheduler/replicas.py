"""The model state table: which executor has which weights. Executors report it with every batch.

Source: LegoDiffusion (arXiv 2604.08123), section 5: "model state table".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ...graph_import.handles import ModelKey, Patch
from ..ids import ExecutorId
from ..protocol import PatchesSwitched


class ReplicaState(StrEnum):
    """How far a replica is."""

    LOADING = "loading"  # sent with a batch that isn't reported yet
    RESIDENT = "resident"  # as the executor last reported


@dataclass(slots=True)
class Replicas:
    """(executor, model key) -> replica state, and the patches that are on it."""

    _table: dict[ExecutorId, dict[ModelKey, ReplicaState]] = field(default_factory=dict)
    _patches: dict[ExecutorId, dict[ModelKey, tuple[Patch, ...]]] = field(default_factory=dict)

    def has(self, executor: ExecutorId, key: ModelKey) -> bool:
        """Whether the weights are on the executor, or will be before its batch runs."""
        return key in self._table.get(executor, ())

    def resident(self, executor: ExecutorId) -> tuple[ModelKey, ...]:
        """The models that an executor has loaded."""
        states = self._table.get(executor, {})
        return tuple(key for key, state in states.items() if state is ReplicaState.RESIDENT)

    def patches(self, executor: ExecutorId, key: ModelKey) -> tuple[Patch, ...]:
        """The patches on an executor's replica when it last reported; none on one that it lacks."""
        return self._patches.get(executor, {}).get(key, ())

    def num_models(self, executor: ExecutorId) -> int:
        """How many models are on an executor or on their way."""
        return len(self._table.get(executor, ()))

    def send(self, executor: ExecutorId, key: ModelKey) -> None:
        """A batch that needs the model goes to the executor."""
        self._table.setdefault(executor, {}).setdefault(key, ReplicaState.LOADING)

    def report(
        self,
        executor: ExecutorId,
        keys: Iterable[ModelKey],
        switched: Iterable[PatchesSwitched] = (),
    ) -> None:
        """The executor's own word replaces all we thought; patches that stay are not repeated."""
        resident = dict.fromkeys(keys, ReplicaState.RESIDENT)
        patches = self._patches.get(executor, {}) | {item.key: item.patches for item in switched}
        self._table[executor] = resident
        self._patches[executor] = {key: patches[key] for key in resident if key in patches}

    def forget(self, executor: ExecutorId) -> None:
        """The executor is gone, or unloads everything."""
        self._table.pop(executor, None)
        self._patches.pop(executor, None)
