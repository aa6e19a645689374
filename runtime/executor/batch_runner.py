"""Runs a batch: gets the inputs, has the model, calls the op's body, puts the outputs.

A call's failure is its own: when a batch of several raises, its calls run one by one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import cast

import msgspec
import torch

from ..config import ExecutorSettings
from ..data_plane.base import DataPlane
from ..data_plane.zmq import PeerUnreachable
from ..errors import Cancelled, InputsLost, NodeFailed
from ..ids import ExecutorId
from ..ops.base import Folders, OpBody, OpCall, OpContext, OpResult
from ..protocol import (
    BatchDone,
    CallCancelled,
    CallDone,
    CallFailed,
    CallLost,
    CallResult,
    NodeCall,
    RunBatch,
    ScalarValue,
    TensorKey,
    TensorRef,
    TreeValue,
    ValueRef,
)
from ..values import Value, flatten, unflatten
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
        self._plane = plane
        self._models = models
        self._body_of = body_of
        self._folders = Folders(
            input=settings.input_directory,
            output=settings.output_directory,
            temp=settings.temp_directory,
            saves=settings.saves_directory,
        )

    def run(self, batch: RunBatch, check_cancelled: Callable[[], None]) -> BatchDone:
        """Run all calls; never raises for what a node, a file or a peer does wrong."""
        start_s = time.perf_counter()
        results = self._results(batch, check_cancelled)
        return BatchDone(
            executor=self._settings.executor,
            incarnation=self._settings.incarnation,
            batch_id=batch.batch_id,
            results=tuple(results),
            resident=self._models.resident(),
            loaded=self._models.take_loaded(),
            run_s=time.perf_counter() - start_s,
        )

    def drop_models(self) -> None:
        """Unload every model."""
        self._models.drop_all()

    def discard(self, done: BatchDone) -> None:
        """Release the outputs of a report that can't be sent."""
        self._plane.release(_output_keys(done.results))

    def _results(self, batch: RunBatch, check_cancelled: Callable[[], None]) -> list[CallResult]:
        """One result per call, in order."""
        results: dict[int, CallResult] = {}
        ready: dict[int, OpCall] = {}
        inputs = _Inputs(self._plane)
        try:
            for index, call in enumerate(batch.calls):
                check_cancelled()
                gathered = inputs.gather(call)
                if isinstance(gathered, OpCall):
                    ready[index] = gathered
                else:
                    results[index] = gathered
            check_cancelled()
            if ready:
                outcomes = self._run_ready(batch, list(ready.values()), check_cancelled)
                results |= self._publish(batch, dict(zip(ready, outcomes, strict=True)))
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
                preview_size=self._settings.preview_size,
                is_metadata_disabled=self._settings.is_metadata_disabled,
            )
        except Cancelled:
            raise
        except Exception as problem:  # noqa: BLE001  (whatever a file or its loader does)
            return [_failed(call, problem) for call in calls]
        together = _attempt(body, context, calls)
        if together is not None:
            return list(together)
        return [_attempt_alone(body, context, call) for call in calls]

    def _publish(
        self, batch: RunBatch, outcomes: Mapping[int, OpResult | CallResult]
    ) -> dict[int, CallResult]:
        return {
            index: self._put(batch.calls[index], outcome)
            if isinstance(outcome, OpResult)
            else outcome
            for index, outcome in outcomes.items()
        }

    def _put(self, call: NodeCall, result: OpResult) -> CallDone | CallFailed:
        """Publish the outputs of a call; on failure nothing of it stays held."""
        refs: list[TensorRef] = []
        try:
            if len(result.outputs) != call.num_outputs:
                raise NodeFailed(f"{len(result.outputs)} outputs instead of {call.num_outputs}")
            ui = None if result.ui is None else msgspec.json.encode(result.ui).decode()
            outputs = tuple(self._put_value(value, refs) for value in result.outputs)
        except Exception as problem:  # noqa: BLE001  (a body gave what can't be carried)
            self._plane.release(ref.key for ref in refs)
            log.warning("output_refused", extra={"node": call.node_id, "reason": str(problem)})
            return CallFailed(error=error_report(problem, dict(call.params)))
        return CallDone(outputs=outputs, ui=ui, preview=result.preview)

    def _put_value(self, value: Value, refs: list[TensorRef]) -> ValueRef:
        if value is None or isinstance(value, bool | int | float | str):
            return ScalarValue(value=value)
        tree, tensors = flatten(value)
        first = len(refs)
        for tensor in tensors:
            refs.append(self._plane.put(tensor))  # noqa: PERF401  (what was put shows in `refs`)
        return TreeValue(tree=tree, tensors=tuple(refs[first:]))


class _Inputs:
    """Gathers the inputs of one batch's calls."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._unreachable: set[tuple[ExecutorId, str]] = set()

    def gather(self, call: NodeCall) -> OpCall | CallLost | CallFailed:
        """The call with its arguments' values, or why it can't run."""
        args: dict[str, object] = dict(call.params)
        missing: list[TensorKey] = []
        try:
            for item in call.inputs:
                if isinstance(item.value, ScalarValue):
                    args[item.name] = item.value.value
                elif item.is_deferred:
                    args[item.name] = self._deferred(item.value)
                else:
                    tensors = self._eager(item.value, missing)
                    if not missing:
                        args[item.name] = unflatten(item.value.tree, tensors)
        except Exception as problem:  # noqa: BLE001  (a broken tree, or no memory for a copy)
            return CallFailed(error=error_report(problem, args))
        if missing:
            return CallLost(missing=tuple(missing))
        return OpCall(
            request_id=call.request_id,
            node_id=call.node_id,
            args=args,
            hidden=dict(call.hidden),
        )

    def _eager(self, value: TreeValue, missing: list[TensorKey]) -> list[torch.Tensor]:
        """The tensors; notes keys that can't be had, and doesn't wait twice for a dead peer."""
        tensors: list[torch.Tensor] = []
        for ref in value.tensors:
            holder = (ref.key.executor, ref.key.incarnation)
            if holder in self._unreachable and ref.inline is None:
                missing.append(ref.key)
                continue
            try:
                tensors.append(self._plane.get(ref))
            except PeerUnreachable:
                self._unreachable.add(holder)
                missing.append(ref.key)
            except InputsLost:
                missing.append(ref.key)
        return tensors

    def _deferred(self, value: TreeValue) -> Callable[[], Value]:
        fetches = [self._plane.deferred(ref) for ref in value.tensors]
        return cache(lambda: unflatten(value.tree, [fetch() for fetch in fetches]))


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


def _output_keys(results: Sequence[CallResult]) -> list[TensorKey]:
    return [
        ref.key
        for result in results
        if isinstance(result, CallDone)
        for value in result.outputs
        if isinstance(value, TreeValue)
        for ref in value.tensors
    ]
