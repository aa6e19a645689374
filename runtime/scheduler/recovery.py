"""What a loss undoes: the fewest nodes run again, and requests that kill executors are failed.

A value is lost with the executor that serves it, even where another one has a copy: a ref names its
producer. Whoever already runs with the value may finish. Source: architecture, section 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..protocol import ErrorReport
from .node_state import NodeState, NodeStatus, ValueId
from .tensors import HeldValue

if TYPE_CHECKING:
    from .request_state import RequestState


def lose_values(request: RequestState, is_lost: Callable[[HeldValue], bool]) -> bool:
    """Give up those values of a request that are lost; returns whether there were any."""
    lost = [value_id for value_id, value in request.values.items() if is_lost(value)]
    for value_id in lost:
        request.lose(value_id)
    return bool(lost)


def reopen_producers(request: RequestState) -> list[NodeState]:
    """Let done nodes run again whose lost or given-up values somebody still waits for.

    Only what is waiting asks for values: a running node has been sent its inputs, and a done one
    needs none. So a finished sink never runs again for its own sake. A reopened node waits for its
    own inputs, and the search goes on with those. Returns the reopened nodes, settled.
    """
    reopened: list[NodeState] = []
    open_statuses = (NodeStatus.WAITING, NodeStatus.READY)
    wanted: list[ValueId] = [
        value_id
        for state in request.nodes.values()
        if state.status in open_statuses and state.num_missing
        for value_id in state.inputs
    ]
    while wanted:
        value_id = wanted.pop()
        source = request.nodes[value_id[0]]
        if value_id not in request.values and source.status is NodeStatus.DONE:
            request.reopen(source)
            reopened.append(source)
            wanted.extend(source.inputs)
    reopened.sort(key=lambda state: state.order)
    request.settle(reopened)
    return reopened


def poisoned(state: NodeState) -> ErrorReport:
    """The error of a node that was running on too many executors that died."""
    return report(
        "poisoned_request",
        f"{state.num_deaths} executors died while they ran node {state.node.id} ({state.node.op}); "
        "it is not tried again",
    )


def inputs_lost(state: NodeState) -> ErrorReport:
    """The error of a node whose inputs could not be fetched again and again."""
    return report(
        "inputs_lost",
        f"node {state.node.id} ({state.node.op}) was given up after {state.num_lost} runs whose "
        "inputs could not be fetched or that were stopped",
    )


def wrong_outputs(state: NodeState, num_given: int) -> ErrorReport:
    """The error of an op that breaks its promise."""
    return report(
        "wrong_outputs",
        f"op {state.node.op} of node {state.node.id} gave {num_given} outputs instead of "
        f"{len(state.node.outputs)}",
    )


def report(code: str, message: str) -> ErrorReport:
    """An error that the scheduler itself found."""
    return ErrorReport(
        code=code,
        exception_type="NodeFailed",
        message=message,
        traceback=(),
        current_inputs={},
    )
