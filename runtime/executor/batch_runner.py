"""Runs a batch: gets the inputs, has the model, calls the op's body, puts the outputs.

A call's failure is its own: when a batch of several raises, its calls run one by one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import cast

import torch

from ..config import ExecutorSettings
from ..data_plane.base import DataPlane
from ..errors import Cancelled, InputsLost, NodeFailed
from ..ops.base import Folders, OpBody, OpCall, OpContext, OpResult
from ..protocol import (
    BatchDone,
    CallCancelled,
    CallFailed,
    CallLost,
    CallResult,
    PatchCoverage,
    RunBatch,
    TensorKey,
)
from ..sampling.preview import Previews
from .call_values import CallValues
from .deferred import Arrivals
from .error_report import error_report
from .model_cache import ModelCache

log = logging.getLogger(__name__)


class BatchRunner:
    """What the executor's main thread does with a `RunBatch`.

    Args:
        body_of: the body of an op by name; raises KeyError for an unknown one.
    """

    def __init__(
        self,
        settings: ExecutorSettings,
        plane: DataPlane,
        models: ModelCache,
        body_of: Callable[[str], OpBody],
    ) -> None:
        self._settings = settings
        self._values = CallValues(plane)
        self._models = models
        self._body_of = body_of
        self._worked_s: float | None = None
        # The CPU time of this thread is all that a call takes if it has no other threads.
        self._is_work_told = settings.device == "cpu" and settings.num_threads == 1
        self._previews = Previews(settings.preview_size, settings.preview_folders, settings.device)
        self._folders = Folders(
            input=settings.input_directory,
            output=settings.output_directory,
            temp=settings.temp_directory,
            saves=settings.saves_directory,
        )

    def run(
        self, batch: RunBatch, check_cancelled: Callable[[], None], arrivals: Arrivals | None = None
    ) -> BatchDone:
        """Run all calls; never raises for what a node, a file or a peer does wrong.

        `arrivals` is where awaited inputs come; a batch without them needs none.
        """
        start_s = time.perf_counter()
        arrivals = arrivals or Arrivals()
        self._worked_s = None
        results = self._results(batch, check_cancelled, arrivals)
        return self._done(
            batch,
            results,
            run_s=time.perf_counter() - start_s,
            waited_s=arrivals.waited_s,
            worked_s=self._worked_s,
            coverage=() if batch.model is None else self._models.coverage(batch.model),
        )

    def skip(self, batch: RunBatch) -> BatchDone:
        """The report of a batch that is not run."""
        return self._done(batch, [CallCancelled() for _ in batch.calls], run_s=0.0)

    def _done(
        self,
        batch: RunBatch,
        results: Sequence[CallResult],
        *,
        run_s: float,
        waited_s: float = 0.0,
        worked_s: float | None = None,
        coverage: tuple[PatchCoverage, ...] = (),
    ) -> BatchDone:
        return BatchDone(
            executor=self._settings.executor,
            incarnation=self._settings.incarnation,
            batch_id=batch.batch_id,
            results=tuple(results),
            resident=self._models.resident(),
            loaded=self._models.take_loaded(),
            run_s=run_s,
            waited_s=waited_s,
            worked_s=worked_s,
            switched=self._models.take_switched(),
            coverage=coverage,
        )

    def drop_models(self) -> None:
        """Unload every model."""
        self._models.drop_all()
        self._previews.drop_decoders()

    def discard(self, done: BatchDone) -> None:
        """Release the outputs of a report that can't be sent."""
        self._values.discard(done.results)

    def _results(
        self, batch: RunBatch, check_cancelled: Callable[[], None], arrivals: Arrivals
    ) -> list[CallResult]:
        """One result per call, in order."""
        results: dict[int, CallResult] = {}
        ready: dict[int, OpCall] = {}
        try:
            for index, call in enumerate(batch.calls):
                check_cancelled()
                gathered = self._values.gather(
                    call, lambda awaited: arrivals.take(awaited, check_cancelled)
                )
                if isinstance(gathered, OpCall):
                    ready[index] = gathered
                else:
                    results[index] = gathered
            check_cancelled()
            if ready:
                outcomes = self._run_ready(batch, list(ready.values()), check_cancelled)
                for index, outcome in zip(ready, outcomes, strict=True):
                    results[index] = (
                        self._values.publish(batch.calls[index], outcome)
                        if isinstance(outcome, OpResult)
                        else outcome
                    )
        except Cancelled:
            results = {}
        return [results.get(index, CallCancelled()) for index in range(len(batch.calls))]

    def _run_ready(
        self, batch: RunBatch, calls: list[OpCall], check_cancelled: Callable[[], None]
    ) -> list[OpResult | CallResult]:
        try:
            body = self._body_of(batch.op)
            ref = batch.model
            context = OpContext(
                model=None if ref is None else self._models.get(ref, check_cancelled),
                folders=self._folders,
                check_cancelled=check_cancelled,
                is_strict=self._settings.is_strict,
                previews=self._previews,
                is_metadata_disabled=self._settings.is_metadata_disabled,
            )
        except Cancelled:
            raise
        except Exception as problem:  # noqa: BLE001  (whatever a file or its loader does)
            return [_failed(call, problem) for call in calls]
        start_s = time.thread_time()
        together = _attempt(body, context, calls)
        if together is not None:
            if self._is_work_told:
                self._worked_s = time.thread_time() - start_s
            return list(together)
        return [_attempt_alone(body, context, call) for call in calls]


def _attempt(
    body: OpBody, context: OpContext, calls: Sequence[OpCall]
) -> Sequence[OpResult | CallResult] | None:
    """Run the calls together; None when that failed and each should get its own attempt."""
    if len(calls) == 1:
        return [_attempt_alone(body, context, calls[0])]
    try:
        return _call_body(body, context, calls)
    except Cancelled:
        raise
    except Exception as problem:  # noqa: BLE001  (the guilty call is found by running each alone)
        log.warning("batch_split", extra={"num_calls": len(calls), "reason": str(problem)})
        return None


def _attempt_alone(body: OpBody, context: OpContext, call: OpCall) -> OpResult | CallResult:
    try:
        return _call_body(body, context, [call])[0]
    except Cancelled:
        raise
    except InputsLost as problem:
        return CallLost(missing=cast(tuple[TensorKey, ...], problem.details["keys"]))
    except Exception as problem:  # noqa: BLE001  (a node's failure ends its request, not us)
        return _failed(call, problem)


def _call_body(body: OpBody, context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    context.check_cancelled()
    with torch.inference_mode():
        results = body(context, calls)
    context.check_cancelled()
    if len(results) != len(calls):
        raise NodeFailed(f"{len(results)} results for {len(calls)} calls")
    return results


def _failed(call: OpCall, problem: Exception) -> CallFailed:
    log.warning(
        "call_failed",
        extra={"request": call.request_id, "node": call.node_id, "reason": str(problem)},
    )
    return CallFailed(error=error_report(problem, call.args))
