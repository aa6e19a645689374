"""One simulated executor of `kit.plant`: what it runs, which tensors and models it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from nodeloom.graph_import.handles import ModelKey, ModelRef, Patch
from nodeloom.graph_import.types import CONDITIONING, INT, MASK
from nodeloom.runtime.ids import BatchId, ExecutorId, TensorId
from nodeloom.runtime.protocol import (
    AwaitedValue,
    CallDone,
    CallResult,
    ModelLoaded,
    NodeCall,
    PatchesSwitched,
    RunBatch,
    ScalarValue,
    TensorKey,
    TensorRef,
    TreeValue,
    ValueRef,
)

INLINE_TYPES = (MASK, CONDITIONING)  # of which tensors are small enough here to travel in the ref
SHAPE = (1, 4, 512, 512)  # float32: 4 MiB


@dataclass
class Worker:
    """One incarnation of an executor. `batches`: the one that it runs, and its chain's rest."""

    executor: ExecutorId
    incarnation: str
    batches: list[RunBatch] = field(default_factory=list)
    cancelled: set[BatchId] = field(default_factory=set)
    recalled: set[BatchId] = field(default_factory=set)
    last_done: BatchId | None = None
    arrived: dict[AwaitedValue, ValueRef] = field(default_factory=dict)  # told, or made in a chain
    store: set[TensorKey] = field(default_factory=set)  # made here, or fetched
    known: set[TensorKey] = field(default_factory=set)  # made here, or sent here
    resident: dict[ModelKey, tuple[Patch, ...]] = field(default_factory=dict)  # with its patches
    num_tensors: int = 0

    @property
    def batch(self) -> RunBatch | None:
        """The batch that it runs."""
        return self.batches[0] if self.batches else None

    @property
    def is_stopped(self) -> bool:
        """Whether its batch is not to be run (any further)."""
        if self.batch is None:
            return False
        is_broken = self.batch.after is not None and self.batch.after != self.last_done
        return is_broken or self.batch.batch_id in self.cancelled | self.recalled

    @property
    def is_waiting(self) -> bool:
        """Whether its batch can't go on before a value comes."""
        if self.batch is None or self.is_stopped:
            return False
        inputs = [item.value for call in self.batch.calls for item in call.inputs]
        return any(isinstance(v, AwaitedValue) and v not in self.arrived for v in inputs)

    def make(self, type_: str, save: Callable[[TensorKey], str | None] | None) -> ValueRef:
        """A value of a port type: a scalar, an inline tensor or a stored one, perhaps in a file."""
        self.num_tensors += 1
        if type_ == INT:
            return ScalarValue(value=self.num_tensors)
        key = TensorKey(
            executor=self.executor,
            incarnation=self.incarnation,
            tensor_id=TensorId(self.num_tensors),
        )
        is_inline = type_ in INLINE_TYPES
        if not is_inline:
            self.store.add(key)
            self.known.add(key)
        ref = TensorRef(
            key=key,
            endpoint="inproc",
            shape=(4,) if is_inline else SHAPE,
            dtype="float32",
            inline=b"\0" * 16 if is_inline else None,
            checkpoint=None if is_inline or save is None else save(key),
        )
        return TreeValue(tree=b"\x81\xa1t\x00", tensors=(ref,))

    def made_here(self, keys: Iterable[TensorKey]) -> list[TensorKey]:
        """Those of the tensors that are its own."""
        here = self.executor, self.incarnation
        return [key for key in keys if (key.executor, key.incarnation) == here]

    def note(self, batch: RunBatch, results: Sequence[CallResult]) -> None:
        """Its batch is done: what comes later in the chain may use what it made."""
        self.batches.remove(batch)
        is_done = all(isinstance(result, CallDone) for result in results)
        self.last_done = batch.batch_id if is_done else None
        if not self.batches:
            self.arrived.clear()
        for call, result in zip(batch.calls, results, strict=True):
            for port, ref in enumerate(result.outputs if isinstance(result, CallDone) else ()):
                made = AwaitedValue(request_id=call.request_id, node_id=call.node_id, port=port)
                self.arrived[made] = ref

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


def stored_keys(values: Iterable[ValueRef]) -> Iterable[TensorKey]:
    """The tensors of values that live in executors."""
    for value in values:
        if isinstance(value, TreeValue):
            yield from (ref.key for ref in value.tensors if ref.inline is None)
