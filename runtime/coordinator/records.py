"""What the coordinator stores and shows: submissions, queue items, history entries, views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from ...graph_import.handles import Scalar
from ...graph_import.ir import Graph, NodeId
from ..ids import ClientId, ExecutorId, RequestId

Json = dict[str, object]
Known = Mapping[tuple[NodeId, int], Scalar]


class Importer(Protocol):
    """How the coordinator has a stored prompt lowered: after a restart, and when values arrive.

    Both raise ImportRejected when the prompt can't be lowered any more, e.g. as a file is gone.
    """

    def lower(self, prompt: Json, roots: Sequence[str], extra_data: Json) -> Graph:
        """Lower a validated prompt from scratch; `extra_data` may opt in to passes."""
        ...

    def grow(
        self, graph: Graph, prompt: Json, roots: Sequence[str], extra_data: Json, known: Known
    ) -> Graph:
        """Lower it again with the scalar values `known`; nodes of `graph` come out unchanged."""
        ...


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it was accepted.

    `prompt` is the validated prompt graph, `extra_data` the client's, without its secrets; `roots`
    are the outputs to execute; `hidden` the JSON texts that ops may ask for.
    """

    request_id: RequestId
    client_id: ClientId | None
    number: float | int
    prompt: Json
    extra_data: Json
    roots: tuple[str, ...]
    hidden: dict[str, str]


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A request that ended, with the fields of ComfyUI's history; `patches` is ours (coverage)."""

    submission: Submission
    outputs: dict[str, Json]
    status_str: str
    completed: bool
    messages: list[tuple[str, Json]]
    meta: dict[str, Json]
    patches: list[Json] = msgspec.field(default_factory=list)  # entries of old stores have none


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """The live requests: those that have begun to run, and those that wait."""

    running: tuple[Submission, ...]
    pending: tuple[Submission, ...]


class ExecutorView(msgspec.Struct, frozen=True, kw_only=True):
    """An executor as the page and the operator see it."""

    id: ExecutorId
    pid: int
    state: str
    device: str
    threads: int
    resident: tuple[str, ...]
    num_loads: int
    running: str | None
    rss_bytes: int
    held_bytes: int
