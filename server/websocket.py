"""One client's socket: greeting, feature flags, a bounded queue of frames to send, reconnect.

Source: spec comfyui-api/api.md, section 7.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web

from ..runtime.config import Settings
from ..runtime.ids import ClientId
from .app_keys import COORDINATOR, NOTICE_HUB, SETTINGS
from .comfy_notices import Frame, SocketFlags, running_node_frame, status_frame, text_frame

log: Final = logging.getLogger(__name__)

MAX_INCOMING_BYTES: Final = 4 * 1024 * 1024
MAX_FLAGS_CHARACTERS: Final = 64 * 1024
MAX_QUEUED_FRAMES: Final = 4096
MAX_QUEUED_BYTES: Final = 32 * 1024 * 1024
MAX_SOCKETS: Final = 1024
SEND_TIMEOUT_S: Final = 60.0
GOODBYE_TIMEOUT_S: Final = 2.0

SOCKETS: web.AppKey[set[ClientSocket]] = web.AppKey("sockets", set)


def server_features(settings: Settings) -> dict[str, object]:
    """What the server can do, as `/features` and the answer to feature flags say it."""
    return {
        "supports_preview_metadata": True,
        "max_upload_size": settings.max_upload_bytes,
        "extension": {"manager": {"supports_v4": True}},
    }


class ClientSocket:
    """An open websocket with its queue of frames; `run` sends and receives until it closes."""

    def __init__(self, socket: web.WebSocketResponse, transport: asyncio.Transport | None) -> None:
        self._socket = socket
        self._transport = transport
        self._frames: asyncio.Queue[Frame] = asyncio.Queue(MAX_QUEUED_FRAMES)
        self._queued_bytes = 0
        self._is_first_message = True
        self._flags = SocketFlags()

    @property
    def flags(self) -> SocketFlags:
        """What the client takes, by its feature flags."""
        return self._flags

    def offer(self, frame: Frame) -> None:
        """Queue a frame. A preview is skipped when half of the room is taken; a socket whose room
        is full is cut off, so that nobody waits for it."""
        is_half_full = (
            self._frames.qsize() > MAX_QUEUED_FRAMES // 2
            or self._queued_bytes > MAX_QUEUED_BYTES // 2
        )
        if isinstance(frame, bytes) and is_half_full:
            return
        if self._frames.full() or self._queued_bytes + len(frame) > MAX_QUEUED_BYTES:
            log.warning("socket_too_slow", extra={"num_frames": self._frames.qsize()})
            self.cut_off()
            return
        self._queued_bytes += len(frame)
        self._frames.put_nowait(frame)

    def cut_off(self) -> None:
        """Close the connection at once, whatever is unsent."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Say goodbye: the server stops."""
        await self._socket.close(code=WSCloseCode.GOING_AWAY)

    async def run(self, settings: Settings) -> None:
        """Send what is queued and read what comes, until the connection ends."""
        sender = asyncio.create_task(self._send_queued())
        try:
            async for message in self._socket:
                if message.type is WSMsgType.TEXT:
                    self._hear(message.data, settings)
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _send_queued(self) -> None:
        try:
            while True:
                frame = await self._frames.get()
                self._queued_bytes -= len(frame)
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    if isinstance(frame, str):
                        await self._socket.send_str(frame)
                    else:
                        await self._socket.send_bytes(frame)
        except (ConnectionError, TimeoutError) as problem:
            log.info("socket_lost", extra={"reason": str(problem)})
            self.cut_off()

    def _hear(self, text: str, settings: Settings) -> None:
        """Feature flags count if they are the first message that is JSON; all else is ignored."""
        if not self._is_first_message or len(text) > MAX_FLAGS_CHARACTERS:
            return  # not even parsed: that would keep all others waiting
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return
        self._is_first_message = False
        if not isinstance(message, dict):
            return
        data = message.get("data")
        if message.get("type") != "feature_flags" or not isinstance(data, dict):
            return
        self._flags = SocketFlags(
            takes_preview_metadata=data.get("supports_preview_metadata") is True,
            takes_dag_nodes=data.get("supports_nodeloom_graph") is True,
        )
        self.offer(text_frame("feature_flags", server_features(settings)))


async def get_ws(request: web.Request) -> web.WebSocketResponse:
    """GET /ws?clientId=ID: upgrade, greet, then stream notices."""
    sockets = request.app[SOCKETS]
    if len(sockets) >= MAX_SOCKETS:
        raise web.HTTPServiceUnavailable(text="Too many sockets are open.")
    socket = web.WebSocketResponse(max_msg_size=MAX_INCOMING_BYTES, timeout=GOODBYE_TIMEOUT_S)
    await socket.prepare(request)
    client_id = ClientId(request.query.get("clientId") or uuid.uuid4().hex)
    coordinator, hub = request.app[COORDINATOR], request.app[NOTICE_HUB]
    client = ClientSocket(socket, request.transport)
    sockets.add(client)
    # No await from here to `join`: the greeting stands before every notice.
    client.offer(status_frame(coordinator.queue_remaining(), sid=client_id))
    running = coordinator.running_node(client_id)
    if running is not None:
        client.offer(running_node_frame(running))
    hub.join(client_id, client)
    try:
        await client.run(request.app[SETTINGS])
    finally:
        hub.leave(client_id, client)
        sockets.discard(client)
    return socket


async def close_sockets(app: web.Application) -> None:
    """Close every socket, so that the server can stop."""
    sockets = app[SOCKETS]
    await asyncio.gather(*(client.close() for client in sockets.copy()))
