"""The model state table: which executor has which weights. Executors report it with every batch.

Source: LegoDiffusion (arXiv 2604.08123), section 5: "model state table".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ...graph_import.handles import ModelKey
from ..ids import ExecutorId


class ReplicaState(StrEnum):
    """How far a replica is."""

    LOADING = "loading"  # sent with a batch that isn't reported yet
    RESIDENT = "resident"  # as the executor last reported


@dataclass(slots=True)
class Replicas:
    """(executor, model key) -> replica state."""

    _table: dict[ExecutorId, dict[ModelKey, ReplicaState]] = field(default_factory=dict)

    def has(self, executor: ExecutorId, key: ModelKey) -> bool:
        """Whether the weights are on the executor, or will be before its batch runs."""
        return key in self._table.get(executor, ())

    def resident(self, executor: ExecutorId) -> tuple[ModelKey, ...]:
        """The models that an executor has loaded."""
        states = self._table.get(executor, {})
        return tuple(key for key, state in states.items() if state is ReplicaState.RESIDENT)

    def num_models(self, executor: ExecutorId) -> int:
        """How many models are on an executor or on their way."""
        return len(self._table.get(executor, ()))

    def send(self, executor: ExecutorId, key: ModelKey) -> None:
        """A batch that needs the model goes to the executor."""
        self._table.setdefault(executor, {}).setdefault(key, ReplicaState.LOADING)

    def report(self, executor: ExecutorId, keys: Iterable[ModelKey]) -> None:
        """The executor's own word replaces all we thought."""
        self._table[executor] = dict.fromkeys(keys, ReplicaState.RESIDENT)

    def forget(self, executor: ExecutorId) -> None:
        """The executor is gone, or unloads everything."""
        self._table.pop(executor, None)
