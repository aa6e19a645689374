"""What a client may hear. `server/comfy_notices.py` gives them ComfyUI's names and shapes.

A notice names nodes of the submitted ComfyUI graph, never DAG nodes; `DagNodeChanged` is the one
exception, for our own page. `client_id` None means that the request has no owner.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .ids import ClientId, ExecutorId, RequestId
from .protocol import ErrorReport


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all notices."""


class QueueChanged(Notice, frozen=True, kw_only=True):
    """To everybody: how many requests wait or run."""

    queue_remaining: int


class RequestNotice(Notice, frozen=True, kw_only=True):
    """Base of notices about one request."""

    request_id: RequestId
    client_id: ClientId | None


class Started(RequestNotice, frozen=True, kw_only=True):
    """The request begins; `cached_nodes` need no run."""

    cached_nodes: tuple[str, ...]
    timestamp_ms: int


class NodeState(StrEnum):
    """As ComfyUI's progress_state says it."""

    RUNNING = "running"
    FINISHED = "finished"


class NodeProgress(msgspec.Struct, frozen=True, kw_only=True):
    """One node's entry in a progress picture. Whole nodes are told in floats, steps in integers."""

    node_id: str
    value: float | int
    max_value: float | int
    state: NodeState


class ProgressState(RequestNotice, frozen=True, kw_only=True):
    """All nodes touched so far, in order of first touch."""

    nodes: tuple[NodeProgress, ...]


class NodeExecuting(RequestNotice, frozen=True, kw_only=True):
    """A node of the submitted graph starts."""

    node_id: str


class Progress(RequestNotice, frozen=True, kw_only=True):
    """A node reports step `value` of `max_value`; `preview` is a JPEG file."""

    node_id: str
    value: int
    max_value: int
    preview: bytes | None


class NodeExecuted(RequestNotice, frozen=True, kw_only=True):
    """A node gave ui output: JSON text, or None where an equal node's stands for it."""

    node_id: str
    ui: str | None


class Succeeded(RequestNotice, frozen=True, kw_only=True):
    """The request ended well."""

    timestamp_ms: int


class Failed(RequestNotice, frozen=True, kw_only=True):
    """The request ended with an error in a node."""

    node_id: str
    node_type: str
    executed: tuple[str, ...]
    error: ErrorReport
    timestamp_ms: int


class Interrupted(RequestNotice, frozen=True, kw_only=True):
    """The request was stopped."""

    node_id: str
    node_type: str
    executed: tuple[str, ...]
    timestamp_ms: int


class EndMarker(RequestNotice, frozen=True, kw_only=True):
    """Nothing more will be said of the request; it is in the history by now."""


class DagNodeChanged(RequestNotice, frozen=True, kw_only=True):
    """A DAG node changed state (for clients that asked for it)."""

    node_id: str
    state: str
    executor: ExecutorId | None


AnyNotice = (
    QueueChanged
    | Started
    | ProgressState
    | NodeExecuting
    | Progress
    | NodeExecuted
    | Succeeded
    | Failed
    | Interrupted
    | EndMarker
    | DagNodeChanged
)
