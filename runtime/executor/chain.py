"""What the batches of a chain leave for one another.

The coordinator sends batches ahead that await what earlier ones make (`RunBatch.after`). They find
it here: nobody has to tell the executor what it made itself.
"""

from __future__ import annotations

from ..ids import BatchId
from ..protocol import AwaitedValue, BatchDone, CallDone, RunBatch, ValueRef
from .deferred import Arrivals


class Chain:
    """The chain that runs, or ran last."""

    def __init__(self) -> None:
        self._last: BatchId | None = None
        self._made: dict[AwaitedValue, ValueRef] = {}

    def begin(self, batch: RunBatch, arrivals: Arrivals) -> bool:
        """Hand a batch what earlier ones made for it; False if that is not there: it can't run."""
        if batch.after is None:
            self._made.clear()
            return True
        if batch.after != self._last:
            return False
        for call in batch.calls:
            for item in call.inputs:
                if not isinstance(item.value, AwaitedValue):
                    continue
                made = self._made.get(item.value)
                if made is not None:
                    arrivals.put(item.value, made)
                elif not item.is_deferred:
                    return False
        return True

    def note(self, batch: RunBatch, done: BatchDone) -> None:
        """A batch was run; where it was not done, what comes after it can't run."""
        is_done = all(isinstance(result, CallDone) for result in done.results)
        self._last = batch.batch_id if is_done else None
        for call, result in zip(batch.calls, done.results, strict=True):
            for port, ref in enumerate(result.outputs if isinstance(result, CallDone) else ()):
                awaited = AwaitedValue(request_id=call.request_id, node_id=call.node_id, port=port)
                self._made[awaited] = ref
