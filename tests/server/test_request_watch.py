"""Waiting for the end of a request: woken by its end marker, or when it has left the queue."""

from __future__ import annotations

import asyncio

from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.notices import EndMarker, QueueChanged
from nodeloom.server.request_watch import RequestWatch

ONE, OTHER = RequestId("one"), RequestId("other")


def marker(request_id: RequestId) -> EndMarker:
    return EndMarker(request_id=request_id, client_id=None)


async def test_a_request_that_is_over_is_not_waited_for() -> None:
    await RequestWatch().ended(ONE, lambda: False)


async def test_the_end_marker_wakes_its_own_waiters_alone() -> None:
    watch = RequestWatch()
    first, second, other = (
        asyncio.ensure_future(watch.ended(request_id, lambda: True))
        for request_id in (ONE, ONE, OTHER)
    )
    await asyncio.sleep(0)
    watch.publish(marker(ONE))
    await asyncio.gather(first, second)
    assert not other.done()
    watch.publish(marker(OTHER))
    await other
    assert watch._waiting == {}


async def test_a_request_that_leaves_the_queue_is_noticed() -> None:
    watch = RequestWatch()
    live = {ONE}
    waiting = asyncio.ensure_future(watch.ended(ONE, lambda: ONE in live))
    await asyncio.sleep(0)
    watch.publish(QueueChanged(queue_remaining=1))
    await asyncio.sleep(0)
    assert not waiting.done()
    live.clear()
    watch.publish(QueueChanged(queue_remaining=0))
    await waiting


async def test_who_gives_up_leaves_nothing_behind() -> None:
    watch = RequestWatch()
    waiting = asyncio.ensure_future(watch.ended(ONE, lambda: True))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert watch._waiting == {}
    watch.publish(marker(ONE))
