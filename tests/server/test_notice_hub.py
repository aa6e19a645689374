"""Who hears what, in which order; one socket per client id."""

from __future__ import annotations

import json

from nodeloom.runtime.ids import ClientId, RequestId
from nodeloom.runtime.notices import EndMarker, NodeExecuting, Progress, QueueChanged
from nodeloom.server.comfy_notices import Frame, SocketFlags
from nodeloom.server.notice_hub import NoticeHub

A, B = ClientId("a"), ClientId("b")


class Ear:
    """A listener that keeps what it is offered."""

    def __init__(self, flags: SocketFlags | None = None) -> None:
        self.flags = flags or SocketFlags()
        self.heard: list[Frame] = []

    def offer(self, frame: Frame) -> None:
        self.heard.append(frame)

    def kinds(self) -> list[str]:
        return [
            "preview" if isinstance(frame, bytes) else json.loads(frame)["type"]
            for frame in self.heard
        ]


def executing(client_id: ClientId | None) -> NodeExecuting:
    return NodeExecuting(request_id=RequestId("r"), client_id=client_id, node_id="3")


def step(client_id: ClientId | None) -> Progress:
    return Progress(
        request_id=RequestId("r"),
        client_id=client_id,
        node_id="3",
        value=1,
        max_value=2,
        preview=b"jpeg",
    )


def test_the_owner_hears_its_run_and_everybody_hears_the_count() -> None:
    hub, a, b = NoticeHub(), Ear(), Ear()
    hub.join(A, a)
    hub.join(B, b)
    hub.publish(QueueChanged(queue_remaining=1))
    hub.publish(executing(A))
    hub.publish(EndMarker(request_id=RequestId("r"), client_id=A))
    assert a.kinds() == ["status", "executing", "executing"]
    assert b.kinds() == ["status"]


def test_without_an_owner_progress_goes_to_everybody_and_the_end_to_nobody() -> None:
    hub, a, b = NoticeHub(), Ear(), Ear(SocketFlags(takes_preview_metadata=True))
    hub.join(A, a)
    hub.join(B, b)
    hub.publish(step(None))
    hub.publish(EndMarker(request_id=RequestId("r"), client_id=None))
    assert a.kinds() == b.kinds() == ["progress", "preview"]


def test_each_socket_gets_the_form_of_preview_that_it_takes() -> None:
    hub, a, b = NoticeHub(), Ear(), Ear(SocketFlags(takes_preview_metadata=True))
    hub.join(A, a)
    hub.join(B, b)
    hub.publish(step(A))
    hub.publish(step(B))
    assert a.kinds() == ["progress", "preview"]
    assert b.kinds() == ["preview", "progress"]


def test_notices_to_an_owner_who_is_gone_are_lost() -> None:
    hub, a = NoticeHub(), Ear()
    hub.join(A, a)
    hub.leave(A, a)
    hub.publish(executing(A))
    assert a.heard == []
    assert len(hub) == 0


def test_a_second_socket_takes_the_place_and_keeps_it_when_the_first_closes() -> None:
    hub, first, second = NoticeHub(), Ear(), Ear()
    hub.join(A, first)
    hub.join(A, second)
    hub.publish(QueueChanged(queue_remaining=1))
    hub.leave(A, first)
    hub.publish(executing(A))
    assert first.heard == []
    assert second.kinds() == ["status", "executing"]
