"""What the coordinator may look at: copies, so that nothing but events changes the scheduler."""

from __future__ import annotations

import msgspec

from ...graph_import.handles import ModelKey
from ..ids import BatchId, ExecutorId
from .node_state import NodeStatus


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a node is, and where it runs or ran last."""

    status: NodeStatus
    executor: ExecutorId | None


class ExecutorState(msgspec.Struct, frozen=True, kw_only=True):
    """A living executor: what it runs, which models it has, how often it read one from a file."""

    incarnation: str
    running: BatchId | None
    running_op: str | None
    resident: tuple[ModelKey, ...]
    num_loads: int
