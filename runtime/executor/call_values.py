"""A call's values: its inputs out of the data plane, its outputs into it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache

import msgspec
import torch

from ..data_plane.base import DataPlane
from ..errors import InputsLost, NodeFailed
from ..ops.base import OpCall, OpResult
from ..protocol import (
    AwaitedValue,
    CallDone,
    CallFailed,
    CallLost,
    CallResult,
    NodeCall,
    ScalarValue,
    TensorKey,
    TensorRef,
    TreeValue,
    ValueRef,
)
from ..values import Value, flatten, unflatten
from .error_report import error_report

log = logging.getLogger(__name__)


class CallValues:
    """Goes between refs, which messages carry, and values, which bodies know."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    def gather(
        self, call: NodeCall, take: Callable[[AwaitedValue], ValueRef]
    ) -> OpCall | CallLost | CallFailed:
        """The call with its arguments' values, or why it can't run.

        `take` waits for a value that is not there yet; it is called where the body needs it.
        """
        args: dict[str, object] = dict(call.params)
        missing: list[TensorKey] = []
        try:
            for item in call.inputs:
                ref = item.value
                if isinstance(ref, AwaitedValue) and item.is_deferred:
                    args[item.name] = self._awaited(ref, take)
                    continue
                if isinstance(ref, AwaitedValue):  # made by an earlier batch of the chain
                    ref = take(ref)
                if isinstance(ref, ScalarValue):
                    args[item.name] = ref.value
                elif item.is_deferred:
                    args[item.name] = self._deferred(ref)
                else:
                    tensors = self._eager(ref, missing)
                    if not missing:
                        args[item.name] = unflatten(ref.tree, tensors)
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

    def publish(self, call: NodeCall, result: OpResult) -> CallDone | CallFailed:
        """Publish the outputs of a call; on failure nothing of it stays held."""
        refs: list[TensorRef] = []
        try:
            if len(result.outputs) != call.num_outputs:
                raise NodeFailed(f"{len(result.outputs)} outputs instead of {call.num_outputs}")
            ui = None if result.ui is None else msgspec.json.encode(result.ui).decode()
            outputs = tuple(
                self._put_value(value, refs, is_checkpointed=port in call.checkpoints)
                for port, value in enumerate(result.outputs)
            )
        except Exception as problem:  # noqa: BLE001  (a body gave what can't be carried)
            self._plane.release(ref.key for ref in refs)
            log.warning("output_refused", extra={"node": call.node_id, "reason": str(problem)})
            return CallFailed(error=error_report(problem, dict(call.params)))
        return CallDone(outputs=outputs, ui=ui, preview=result.preview)

    def discard(self, results: Sequence[CallResult]) -> None:
        """Release all outputs of results that nobody will hear of."""
        self._plane.release(
            ref.key
            for result in results
            if isinstance(result, CallDone)
            for value in result.outputs
            if isinstance(value, TreeValue)
            for ref in value.tensors
        )

    def _eager(self, value: TreeValue, missing: list[TensorKey]) -> list[torch.Tensor]:
        """The tensors; notes the keys of those that can't be had."""
        tensors: list[torch.Tensor] = []
        for ref in value.tensors:
            try:
                tensors.append(self._plane.get(ref))
            except InputsLost:
                missing.append(ref.key)
        return tensors

    def _deferred(self, value: TreeValue) -> Callable[[], Value]:
        fetches = [self._plane.deferred(ref) for ref in value.tensors]
        return cache(lambda: unflatten(value.tree, [fetch() for fetch in fetches]))

    def _awaited(
        self, awaited: AwaitedValue, take: Callable[[AwaitedValue], ValueRef]
    ) -> Callable[[], Value]:
        def fetch() -> Value:
            ref = take(awaited)
            return ref.value if isinstance(ref, ScalarValue) else self._deferred(ref)()

        return cache(fetch)

    def _put_value(self, value: Value, refs: list[TensorRef], *, is_checkpointed: bool) -> ValueRef:
        if value is None or isinstance(value, bool | int | float | str):
            return ScalarValue(value=value)
        tree, tensors = flatten(value)
        first = len(refs)
        for tensor in tensors:
            ref = self._plane.put(tensor, is_checkpointed=is_checkpointed)
            refs.append(ref)  # one by one: what was put shows in `refs` if the next one fails
        return TreeValue(tree=tree, tensors=tuple(refs[first:]))
