"""What can happen to the scheduler. Events are journaled, so each is a tagged struct."""

from __future__ import annotations

import msgspec

from ...graph_import.handles import ModelKey
from ...graph_import.ir import Graph, NodeId
from ..ids import BatchId, ExecutorId, RequestId
from ..protocol import (
    CallResult,
    ErrorReport,
    ModelLoaded,
    PatchCoverage,
    PatchesSwitched,
)


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of all events; the tag is the class name."""


class RequestArrived(Event, frozen=True, kw_only=True):
    """A request was accepted and stored. Order is (number, request_id), as in ComfyUI."""

    request_id: RequestId
    number: float
    graph: Graph


class RequestCancelled(Event, frozen=True, kw_only=True):
    """Somebody interrupted or deleted the request; unknown or ended ids are no error."""

    request_id: RequestId


class GraphGrown(Event, frozen=True, kw_only=True):
    """The graph was lowered again with more values known; running nodes are unchanged in it."""

    request_id: RequestId
    graph: Graph


class GrowthFailed(Event, frozen=True, kw_only=True):
    """A pending node could not be lowered with the values that arrived."""

    request_id: RequestId
    pending_id: NodeId
    error: ErrorReport


class ExecutorJoined(Event, frozen=True, kw_only=True):
    """A process said hello. The same executor with a new incarnation replaces the old one."""

    executor: ExecutorId
    incarnation: str


class ExecutorLost(Event, frozen=True, kw_only=True):
    """The process exited or fell silent; its tensors are gone.

    `begun` is the batch that it had begun last, 0 if none; None: it left no word of that.
    """

    executor: ExecutorId
    incarnation: str
    reason: str
    begun: BatchId | None = None


class BatchReported(Event, frozen=True, kw_only=True):
    """An executor finished a batch; late or repeated reports are ignored."""

    executor: ExecutorId
    incarnation: str
    batch_id: BatchId
    results: tuple[CallResult, ...]
    resident: tuple[ModelKey, ...]
    loaded: tuple[ModelLoaded, ...]
    run_s: float
    waited_s: float = 0.0
    worked_s: float | None = None
    switched: tuple[PatchesSwitched, ...] = ()
    coverage: tuple[PatchCoverage, ...] = ()


class ModelsDropped(Event, frozen=True, kw_only=True):
    """Somebody asked to free memory: idle executors unload, busy ones when they are done."""


AnyEvent = (
    RequestArrived
    | RequestCancelled
    | GraphGrown
    | GrowthFailed
    | ExecutorJoined
    | ExecutorLost
    | BatchReported
    | ModelsDropped
)
