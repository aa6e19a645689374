"""One node's progress within its request, and the only ways in which it may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ...graph_import.ir import Node, NodeId
from ..errors import InvariantBroken
from ..ids import ExecutorId, RequestId
from .profiles import CallProfile

if TYPE_CHECKING:
    from .request_state import RequestState

ValueId = tuple[NodeId, int]  # a node's output port
Order = tuple[float, RequestId, int, int, NodeId]  # number, request, depth, position, node


class NodeStatus(StrEnum):
    """How far a node is."""

    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DROPPED = "dropped"


NODE_TRANSITIONS: Final[Mapping[tuple[NodeStatus, NodeStatus], str]] = {
    (NodeStatus.WAITING, NodeStatus.READY): "every input is there, or deferred and on its way",
    (NodeStatus.READY, NodeStatus.WAITING): "an input was lost",
    (NodeStatus.READY, NodeStatus.RUNNING): "sent in a batch",
    (NodeStatus.WAITING, NodeStatus.RUNNING): "sent ahead in a chain that makes its inputs",
    (NodeStatus.RUNNING, NodeStatus.DONE): "reported",
    (NodeStatus.RUNNING, NodeStatus.READY): "executor lost, run again",
    (NodeStatus.RUNNING, NodeStatus.WAITING): "inputs lost, wait for them again",
    (NodeStatus.DONE, NodeStatus.WAITING): "result lost and still needed, run again",
    (NodeStatus.WAITING, NodeStatus.DROPPED): "the request is over",
    (NodeStatus.READY, NodeStatus.DROPPED): "the request is over",
    (NodeStatus.RUNNING, NodeStatus.DROPPED): "the request is over and its executor is free of it",
}


@dataclass(slots=True, eq=False)
class NodeState:
    """A node of a request.

    Args:
        inputs: the values that it reads, each once.
        deferred: those that it reads over deferred edges alone: it may start while they are made.
        num_missing: how many inputs are neither there nor deferred and on their way; kept up to
            date while waiting or ready.
        executor: where it runs or ran last.
        num_deaths: executors that died while running it.
        num_lost: runs that came to nothing because inputs could not be fetched.
    """

    node: Node
    order: Order
    request: RequestState
    profile: CallProfile
    inputs: tuple[ValueId, ...]
    deferred: frozenset[ValueId] = frozenset()
    status: NodeStatus = NodeStatus.WAITING
    num_missing: int = 0
    executor: ExecutorId | None = None
    num_deaths: int = 0
    num_lost: int = 0

    def move(self, status: NodeStatus) -> None:
        """Change the status. Raises: InvariantBroken: NODE_TRANSITIONS has no such way."""
        if (self.status, status) not in NODE_TRANSITIONS:
            raise InvariantBroken(
                f"node {self.node.id} can't go from {self.status} to {status}; "
                + self.request.tell_story(),
                request_id=self.request.request_id,
                node_id=self.node.id,
            )
        self.status = status
        self.request.story.append((self.node.id, status))
