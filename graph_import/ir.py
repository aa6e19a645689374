"""The Graph: a frozen, typed DAG of single model invocations, with content signatures.

Only `builder.GraphBuilder` makes one; `passes/verify.py` says what every Graph satisfies. Nodes are
kept in topological order: a node's producers stand before it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

import msgspec

from .handles import ModelRef, Scalar

NodeId = NewType("NodeId", str)

ParamValue = Scalar | tuple[float, ...]


class EdgeKind(StrEnum):
    """When a consumer needs the value."""

    EAGER = "eager"  # before it starts
    DEFERRED = "deferred"  # at the point of use, while it already runs


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A typed output of a node."""

    name: str
    type: str


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """Data from output `port` of node `source`."""

    source: NodeId
    port: int
    kind: EdgeKind = EdgeKind.EAGER


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node comes from: the submitted ComfyUI node, and its part in that node's progress.

    After this node, `value` of `max_value` is done; a node that reports no progress has 0 of 0.
    """

    node_id: str
    class_type: str
    value: int = 0
    max_value: int = 0


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One schedulable invocation: an op on a model (or on none) with typed inputs and outputs.

    `params` are constants known when the graph was lowered; `inputs` come over edges. Both reach
    the op's body under their names. `hidden` names what the request itself supplies when the node
    is sent (`prompt`, `extra_pnginfo`): no part of the signature, as in ComfyUI.
    """

    id: NodeId
    op: str
    model: ModelRef | None
    params: tuple[tuple[str, ParamValue], ...]
    inputs: tuple[tuple[str, Edge], ...]
    outputs: tuple[Port, ...]
    hidden: tuple[str, ...]
    origin: Origin
    depth: int
    signature: str

    def param(self, name: str) -> ParamValue:
        """The constant called `name`. Raises: KeyError."""
        return dict(self.params)[name]


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A ComfyUI node that can't be lowered until the values on `waits_for` are known.

    One that only waits for another pending node has no edges of its own: it is lowered together
    with that one or becomes pending on edges of its own then.
    """

    id: NodeId
    class_type: str
    waits_for: tuple[Edge, ...]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One ComfyUI node of the submitted graph that the outputs need, and the DAG nodes it became.

    A loader or a folded constant has none. `shared_with` is set when `passes/dedupe.py` found an
    equal member before it: nothing runs for this one. Members stand in topological order.
    """

    node_id: str
    class_type: str
    nodes: tuple[NodeId, ...]
    is_output: bool
    shared_with: str | None = None


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A lowered workflow. `sinks` must complete for the request to succeed."""

    nodes: tuple[Node, ...]
    sinks: tuple[NodeId, ...]
    pending: tuple[Pending, ...]
    members: tuple[Member, ...]

    def by_id(self) -> dict[NodeId, Node]:
        """The nodes by id."""
        return {node.id: node for node in self.nodes}
