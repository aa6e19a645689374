"""Waiting for the end of a request, for answers that are given only then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..runtime.ids import RequestId
from ..runtime.notices import AnyNotice, EndMarker, QueueChanged


class RequestWatch:
    """Hears what the hub hears. Used on the event loop only."""

    def __init__(self) -> None:
        self._waiting: dict[RequestId, set[_Wait]] = {}

    def publish(self, notice: AnyNotice) -> None:
        """Wake whom it concerns; never waits."""
        match notice:
            case EndMarker(request_id=request_id):
                for wait in self._waiting.get(request_id, ()):
                    wait.has_ended = True
                    wait.news.set()
            case QueueChanged():  # a request that is taken out of the queue has no end marker
                for waits in self._waiting.values():
                    for wait in waits:
                        wait.news.set()

    async def ended(self, request_id: RequestId, is_live: Callable[[], bool]) -> None:
        """Return when the request has ended, or isn't live any more."""
        wait = _Wait()
        self._waiting.setdefault(request_id, set()).add(wait)
        try:
            while not wait.has_ended and is_live():
                await wait.news.wait()
                wait.news.clear()
        finally:
            waits = self._waiting[request_id]
            waits.discard(wait)
            if not waits:
                del self._waiting[request_id]


class _Wait:
    """One who waits for one request."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.has_ended = False
