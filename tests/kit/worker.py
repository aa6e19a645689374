"""One simulated executor of `kit.plant`: what it runs, which tensors and models it has."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodeloom.graph_import.handles import ModelKey, ModelRef, Patch
from nodeloom.runtime.ids import ExecutorId
from nodeloom.runtime.protocol import (
    AwaitedValue,
    ModelLoaded,
    NodeCall,
    PatchesSwitched,
    RunBatch,
    TensorKey,
    ValueRef,
)


@dataclass
class Worker:
    """One incarnation of an executor."""

    executor: ExecutorId
    incarnation: str
    batch: RunBatch | None = None
    is_cancelled: bool = False
    arrived: dict[AwaitedValue, ValueRef] = field(default_factory=dict)  # for its batch
    store: set[TensorKey] = field(default_factory=set)  # made here, or fetched
    known: set[TensorKey] = field(default_factory=set)  # made here, or sent here
    resident: dict[ModelKey, tuple[Patch, ...]] = field(default_factory=dict)  # with its patches
    num_tensors: int = 0

    @property
    def is_waiting(self) -> bool:
        """Whether its batch can't go on before a value comes."""
        if self.batch is None or self.is_cancelled:
            return False
        inputs = [item.value for call in self.batch.calls for item in call.inputs]
        return any(isinstance(v, AwaitedValue) and v not in self.arrived for v in inputs)

    def values(self, call: NodeCall) -> list[ValueRef]:
        """The inputs of a call that are known here by now."""
        given = [
            self.arrived.get(v, v) if isinstance(v, AwaitedValue) else v
            for v in (item.value for item in call.inputs)
        ]
        return [value for value in given if not isinstance(value, AwaitedValue)]

    def take_model(
        self, ref: ModelRef | None, load_s: float, switch_s: float
    ) -> tuple[tuple[ModelLoaded, ...], tuple[PatchesSwitched, ...]]:
        """Load a model and switch its patches as far as that is needed; what is reported of it."""
        if ref is None:
            return (), ()
        is_new = ref.key not in self.resident
        is_other = ref.patches != self.resident.get(ref.key, ())
        self.resident[ref.key] = ref.patches
        loaded = ModelLoaded(key=ref.key, seconds_s=load_s, num_bytes=1)
        switched = PatchesSwitched(key=ref.key, patches=ref.patches, seconds_s=switch_s)
        return (loaded,) * is_new, (switched,) * is_other
