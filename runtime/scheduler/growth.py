"""Pending nodes: when the values that they wait for are known, and what to ask the compiler then.

The compiler lowers the whole graph again with every scalar known by now, so one question at a time
is asked per request: answers can't overtake one another, and the next question knows more.
Source: architecture, sections 4 and 14 ("Growth").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...graph_import.handles import Scalar
from ...graph_import.ir import Edge, NodeId, Pending
from ..protocol import ErrorReport, ScalarValue
from .actions import LowerPending
from .node_state import NodeStatus, ValueId
from .recovery import report

if TYPE_CHECKING:
    from .request_state import RequestState


@dataclass(slots=True, frozen=True)
class GrowthStuck:
    """Why a request can't grow any further, and at which pending node."""

    pending_id: NodeId
    error: ErrorReport


@dataclass(slots=True)
class Growth:
    """A request's pending nodes.

    Args:
        asked: what each was waiting for when it was last asked about.
        in_flight: the one whose answer has not come.
    """

    pending: tuple[Pending, ...] = ()
    asked: dict[NodeId, tuple[Edge, ...]] = field(default_factory=dict)
    in_flight: NodeId | None = None

    def replace(self, pending: tuple[Pending, ...]) -> None:
        """The graph was lowered again."""
        self.pending = pending
        self.in_flight = None


def next_question(request: RequestState) -> LowerPending | GrowthStuck | None:
    """What to ask now, if anything; called whenever a value has come or the graph has grown."""
    growth = request.growth
    if growth.in_flight is not None:
        return None
    for pending in growth.pending:
        if not pending.waits_for or growth.asked.get(pending.id) == pending.waits_for:
            continue
        needed = [(edge.source, edge.port) for edge in pending.waits_for]
        wrong = [value_id for value_id in needed if _is_no_scalar(request, value_id)]
        if wrong:
            return _no_scalar(pending, wrong[0])
        if all(value_id in request.values for value_id in needed):
            growth.asked[pending.id] = pending.waits_for
            growth.in_flight = pending.id
            return LowerPending(
                request_id=request.request_id,
                pending_id=pending.id,
                values=_scalars(request),
            )
    if growth.pending and not request.work.num_calls:
        return _stuck(growth.pending[0])
    return None


def _is_no_scalar(request: RequestState, value_id: ValueId) -> bool:
    """Whether the value is known to be something else; scalars are kept while a request lives."""
    value = request.values.get(value_id)
    if value is not None:
        return not value.is_scalar
    source = request.nodes.get(value_id[0])
    return source is not None and source.status is NodeStatus.DONE


def _scalars(request: RequestState) -> tuple[tuple[NodeId, int, Scalar], ...]:
    return tuple(
        (node_id, port, value.ref.value)
        for (node_id, port), value in sorted(request.values.items(), key=lambda item: item[0])
        if isinstance(value.ref, ScalarValue)
    )


def _no_scalar(pending: Pending, value_id: ValueId) -> GrowthStuck:
    node_id, port = value_id
    return GrowthStuck(
        pending_id=pending.id,
        error=report(
            "growth_needs_scalar",
            f"{pending.class_type} (node {pending.id}) can only be lowered when output {port} of "
            f"node {node_id} is a number, a text or a boolean, and it is none of these",
        ),
    )


def _stuck(pending: Pending) -> GrowthStuck:
    return GrowthStuck(
        pending_id=pending.id,
        error=report(
            "growth_stuck",
            f"{pending.class_type} (node {pending.id}) could not be lowered although every node "
            "before it is done",
        ),
    )
