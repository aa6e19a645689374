"""The transition table is all there is."""

from __future__ import annotations

from itertools import product

import pytest
from kit.graphs import chain
from kit.plant import Plant
from nodeloom.graph_import.ir import NodeId
from nodeloom.runtime.errors import InvariantBroken
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.scheduler.node_state import NODE_TRANSITIONS, NodeState, NodeStatus

PAIRS = list(product(NodeStatus, NodeStatus))


@pytest.fixture
def state() -> NodeState:
    plant = Plant()
    plant.arrive("a", chain(2, None))
    return plant.scheduler.requests[RequestId("a")].nodes[NodeId("s1")]


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair in NODE_TRANSITIONS])
def test_a_way_in_the_table_can_be_gone(
    state: NodeState, pair: tuple[NodeStatus, NodeStatus]
) -> None:
    state.status = pair[0]
    state.move(pair[1])
    assert state.status is pair[1]


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair not in NODE_TRANSITIONS])
def test_any_other_way_breaks_an_invariant_and_tells_the_story(
    state: NodeState, pair: tuple[NodeStatus, NodeStatus]
) -> None:
    state.status = pair[0]
    with pytest.raises(InvariantBroken, match=r"s1 .* request a so far: s0 ready") as caught:
        state.move(pair[1])
    assert caught.value.details == {"request_id": "a", "node_id": "s1"}
    assert state.status is pair[0]


def test_what_is_dropped_stays_dropped() -> None:
    assert not [pair for pair in NODE_TRANSITIONS if pair[0] is NodeStatus.DROPPED]
