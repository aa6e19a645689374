"""Ordered fan-out of notices to sockets; a slow reader is dropped, never waited for."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from ..runtime.ids import ClientId
from ..runtime.notices import AnyNotice, QueueChanged
from .comfy_notices import Audience, Frame, SocketFlags, audience, frames

log: Final = logging.getLogger(__name__)


class Listener(Protocol):
    """One client's socket as the hub sees it."""

    @property
    def flags(self) -> SocketFlags:
        """What it takes, at this moment."""
        ...

    def offer(self, frame: Frame) -> None:
        """Queue a frame without waiting. Previews may be skipped, a slow socket may end itself."""
        ...


class NoticeHub:
    """The table of sockets: one per client id, the latest. Used on the event loop only."""

    def __init__(self) -> None:
        self._listeners: dict[ClientId, Listener] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def join(self, client_id: ClientId, listener: Listener) -> None:
        """Make `listener` the socket of that id; an earlier one hears nothing from now on."""
        if client_id in self._listeners:
            log.info("socket_replaced", extra={"client_id": client_id})
        self._listeners[client_id] = listener

    def leave(self, client_id: ClientId, listener: Listener) -> None:
        """Forget `listener`, unless another socket has taken its place."""
        if self._listeners.get(client_id) is listener:
            del self._listeners[client_id]

    def publish(self, notice: AnyNotice) -> None:
        """Hand `notice` to everybody who should hear it; never waits."""
        match audience(notice):
            case Audience.NOBODY:
                hearers: list[Listener] = []
            case Audience.EVERYBODY:
                hearers = list(self._listeners.values())
            case Audience.OWNER:
                hearers = self._owner_of(notice)
        encoded: dict[SocketFlags, list[Frame]] = {}
        for listener in hearers:
            if listener.flags not in encoded:
                encoded[listener.flags] = frames(notice, listener.flags)
            for frame in encoded[listener.flags]:
                listener.offer(frame)

    def _owner_of(self, notice: AnyNotice) -> list[Listener]:
        """The owner's socket; nobody where it is gone: what is told meanwhile is lost."""
        if isinstance(notice, QueueChanged) or notice.client_id is None:
            return []
        listener = self._listeners.get(notice.client_id)
        return [] if listener is None else [listener]
