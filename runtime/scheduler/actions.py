"""What the scheduler may ask for. The coordinator performs actions and decides nothing."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ...graph_import.handles import Scalar
from ...graph_import.ir import NodeId
from ..ids import BatchId, ExecutorId, RequestId
from ..protocol import AwaitedValue, ErrorReport, RunBatch, TensorKey, ValueRef


class Action(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of all actions; the tag is the class name."""


class SendBatch(Action, frozen=True, kw_only=True):
    """Send `batch`; its calls' `hidden` fields are filled in by the coordinator."""

    executor: ExecutorId
    batch: RunBatch
    hidden: tuple[tuple[str, ...], ...]  # per call, the names that its node wants


class Provide(Action, frozen=True, kw_only=True):
    """Tell the executor a value that a batch of its awaits."""

    executor: ExecutorId
    batch_id: BatchId
    awaited: AwaitedValue
    value: ValueRef


class CancelSent(Action, frozen=True, kw_only=True):
    """Tell the executor that nobody wants the batch any more."""

    executor: ExecutorId
    batch_id: BatchId


class Recall(Action, frozen=True, kw_only=True):
    """Tell the executor not to begin these batches, the rest of its chain."""

    executor: ExecutorId
    batch_ids: tuple[BatchId, ...]


class Release(Action, frozen=True, kw_only=True):
    """Tell the executor to forget tensors."""

    executor: ExecutorId
    keys: tuple[TensorKey, ...]


class DropCheckpoints(Action, frozen=True, kw_only=True):
    """Delete files of tensors whose maker is dead."""

    names: tuple[str, ...]


class SweepCheckpoints(Action, frozen=True, kw_only=True):
    """Delete all files of a dead incarnation but those in `kept`."""

    executor: ExecutorId
    incarnation: str
    kept: tuple[str, ...]


class Drop(Action, frozen=True, kw_only=True):
    """Tell the executor to unload its models."""

    executor: ExecutorId


class LowerPending(Action, frozen=True, kw_only=True):
    """Lower the request's graph again: `values` are (node, port, value) known by now."""

    request_id: RequestId
    pending_id: NodeId
    values: tuple[tuple[NodeId, int, Scalar], ...]


class RequestStarted(Action, frozen=True, kw_only=True):
    """The request's first node is about to run."""

    request_id: RequestId


class NodeStarted(Action, frozen=True, kw_only=True):
    """A node was sent to an executor (again, after a loss)."""

    request_id: RequestId
    node_id: NodeId
    executor: ExecutorId


class NodeFinished(Action, frozen=True, kw_only=True):
    """A node is done (again, after a loss)."""

    request_id: RequestId
    node_id: NodeId
    executor: ExecutorId
    ui: str | None
    preview: bytes | None


class NodeReset(Action, frozen=True, kw_only=True):
    """A running or done node must run again: its executor or its result was lost."""

    request_id: RequestId
    node_id: NodeId


class Outcome(StrEnum):
    """How a request ended."""

    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"


class RequestEnded(Action, frozen=True, kw_only=True):
    """The request is over; said exactly once. `node_id` is where it failed or was stopped."""

    request_id: RequestId
    outcome: Outcome
    node_id: NodeId | None
    error: ErrorReport | None


AnyAction = (
    SendBatch
    | Provide
    | CancelSent
    | Recall
    | Release
    | DropCheckpoints
    | SweepCheckpoints
    | Drop
    | LowerPending
    | RequestStarted
    | NodeStarted
    | NodeFinished
    | NodeReset
    | RequestEnded
)
