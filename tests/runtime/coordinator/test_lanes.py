"""One client's stories are told one after another; different clients don't wait for each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from nodeloom.runtime.coordinator.lanes import Ending, Lanes
from nodeloom.runtime.ids import ClientId, RequestId
from nodeloom.runtime.notices import NodeExecuting

A, B, C = RequestId("a"), RequestId("b"), RequestId("c")
CLIENT = ClientId("client")


def word(request_id: RequestId, node: str = "1") -> NodeExecuting:
    return NodeExecuting(request_id=request_id, client_id=CLIENT, node_id=node)


def end(request_id: RequestId) -> Ending:
    return Ending(request_id=request_id)


def test_the_first_story_is_told_as_it_happens() -> None:
    lanes = Lanes()
    lanes.open(A, CLIENT, 0)
    assert lanes.tell(A, [word(A)]) == [word(A)]


def test_a_later_request_of_the_same_client_waits_for_the_ending() -> None:
    lanes = Lanes()
    lanes.open(A, CLIENT, 0)
    lanes.open(B, CLIENT, 1)
    assert lanes.tell(B, [word(B), end(B)]) == []
    assert lanes.tell(A, [word(A)]) == [word(A)]
    assert lanes.tell(A, [end(A)]) == [end(A), word(B), end(B)]


def test_the_next_story_is_the_one_that_comfyui_would_run_next() -> None:
    lanes = Lanes()
    lanes.open(A, CLIENT, 0)
    lanes.open(B, CLIENT, 2)
    lanes.open(C, CLIENT, -1)
    lanes.tell(B, [word(B)])
    lanes.tell(C, [word(C)])
    assert lanes.tell(A, [end(A)]) == [end(A), word(C)]
    assert lanes.tell(C, [end(C)]) == [end(C), word(B)]


def test_requests_without_a_client_do_not_wait_for_each_other() -> None:
    lanes = Lanes()
    lanes.open(A, None, 0)
    lanes.open(B, None, 1)
    assert lanes.tell(B, [end(B)]) == [end(B)]
    assert lanes.tell(A, [end(A)]) == [end(A)]


def test_a_lane_can_be_used_again_after_it_was_empty() -> None:
    lanes = Lanes()
    for _ in range(2):
        lanes.open(A, CLIENT, 0)
        assert lanes.tell(A, [end(A)]) == [end(A)]


@given(st.permutations([A, A, A, B, B, B, C, C, C]), st.permutations([0.0, 1.0, 2.0]))
def test_nothing_is_lost_or_interleaved(order: list[RequestId], numbers: list[float]) -> None:
    lanes = Lanes()
    for request_id, number in zip((A, B, C), numbers, strict=True):
        lanes.open(request_id, CLIENT, number)
    said: list[object] = []
    left = {A: 3, B: 3, C: 3}
    for request_id in order:
        left[request_id] -= 1
        is_last = left[request_id] == 0
        piece = end(request_id) if is_last else word(request_id, str(left[request_id]))
        said += lanes.tell(request_id, [piece])
    stories = [piece.request_id for piece in said]  # type: ignore[attr-defined]
    assert len(said) == 9
    assert [stories[0]] * 3 + [stories[3]] * 3 + [stories[6]] * 3 == stories
