"""Sockets: greeting, feature flags, replacement, limits; slow readers are dropped."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from nodeloom.runtime.ids import ClientId, RequestId
from nodeloom.runtime.notices import NodeExecuting, Progress, QueueChanged
from nodeloom.server.app import Front
from nodeloom.server.app_keys import NOTICE_HUB
from nodeloom.server.websocket import MAX_INCOMING_BYTES, MAX_QUEUED_BYTES

LIMIT_S = 10.0


async def hear(socket: Any) -> Any:
    frame = await socket.receive(timeout=LIMIT_S)
    if frame.type is aiohttp.WSMsgType.TEXT:
        return json.loads(frame.data)
    return frame.data if frame.type is aiohttp.WSMsgType.BINARY else frame.type


def executing(client_id: str) -> NodeExecuting:
    return NodeExecuting(request_id=RequestId("r"), client_id=ClientId(client_id), node_id="3")


@pytest.mark.parametrize("path", ["/ws", "/api/ws"])
@pytest.mark.parametrize("query", ["", "?clientId="])
async def test_a_socket_without_an_id_gets_one(client: Any, path: str, query: str) -> None:
    async with client.ws_connect(path + query) as socket:
        greeting = await hear(socket)
    assert greeting["data"]["status"] == {"exec_info": {"queue_remaining": 0}}
    assert len(greeting["data"]["sid"]) == 32
    assert int(greeting["data"]["sid"], 16) >= 0


async def test_the_greeting_comes_first_with_the_id(client: Any) -> None:
    async with client.ws_connect("/ws?clientId=my-own-id") as socket:
        frame = await socket.receive(timeout=LIMIT_S)
    assert frame.data == (
        '{"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 0}}, '
        '"sid": "my-own-id"}}'
    )


async def test_without_an_upgrade_the_answer_is_the_recorded_400(client: Any) -> None:
    answer = await client.get("/ws?clientId=zzz")
    assert answer.status == 400
    # recorded from ComfyUI 0.8.0
    expected = 'No WebSocket UPGRADE hdr: None\n Can "Upgrade" only to "WebSocket".'
    assert await answer.text() == expected


async def test_flags_count_as_the_first_message_that_is_json(client: Any, front: Front) -> None:
    """As recorded: bad JSON does not use up the first message, any other JSON does."""
    flags = {"type": "feature_flags", "data": {"supports_preview_metadata": True}}
    step = Progress(
        request_id=RequestId("r"),
        client_id=ClientId("late"),
        node_id="3",
        value=1,
        max_value=2,
        preview=b"jpeg",
    )
    async with client.ws_connect("/ws?clientId=late") as socket:
        await hear(socket)
        await socket.send_str("{bad")
        await socket.send_json(flags)
        answer = await hear(socket)
        assert answer == {
            "type": "feature_flags",
            "data": {
                "supports_preview_metadata": True,
                "max_upload_size": 104857600,
                "extension": {"manager": {"supports_v4": True}},
            },
        }
        front.app[NOTICE_HUB].publish(step)
        assert (await hear(socket))[:4] == b"\0\0\0\x04"
    async with client.ws_connect("/ws?clientId=late") as socket:
        await hear(socket)
        await socket.send_json({"type": "something_else", "data": {}})
        await socket.send_json(flags)
        await socket.ping()
        front.app[NOTICE_HUB].publish(step)
        assert (await hear(socket))["type"] == "progress"
        assert (await hear(socket))[:4] == b"\0\0\0\x01"


@pytest.mark.parametrize(
    "text", ["[]", "5", "null", '{"type": "feature_flags", "data": 5}', "[" * 9]
)
async def test_odd_messages_are_ignored(client: Any, front: Front, text: str) -> None:
    async with client.ws_connect("/ws?clientId=odd") as socket:
        await hear(socket)
        await socket.send_str(text)
        await socket.send_bytes(b"\0\1")
        front.app[NOTICE_HUB].publish(executing("odd"))
        assert (await hear(socket))["type"] == "executing"


async def test_a_message_over_four_mebibytes_closes_the_socket(client: Any) -> None:
    """Compressed it is small on the wire: what counts is what it unpacks to."""
    async with client.ws_connect("/ws", compress=15) as socket:
        await hear(socket)
        await socket.send_str("x" * (MAX_INCOMING_BYTES + 1))
        assert await hear(socket) is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
    async with client.ws_connect("/ws?clientId=next") as socket:
        assert (await hear(socket))["data"]["sid"] == "next"


async def test_the_newer_of_two_sockets_hears_all_and_goes_on_when_the_older_closes(
    client: Any, front: Front
) -> None:
    hub = front.app[NOTICE_HUB]
    older = await client.ws_connect("/ws?clientId=twin")
    await hear(older)
    async with client.ws_connect("/ws?clientId=twin") as newer:
        await hear(newer)
        hub.publish(QueueChanged(queue_remaining=7))
        assert (await hear(newer))["data"]["status"]["exec_info"]["queue_remaining"] == 7
        await older.close()
        hub.publish(executing("twin"))
        assert (await hear(newer))["type"] == "executing"
    assert older.closed


async def test_an_accepted_prompt_is_counted_for_everybody(client: Any) -> None:
    prompt = {
        "1": {
            "class_type": "EmptyImage",
            "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 1},
        },
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }
    async with client.ws_connect("/ws") as one, client.ws_connect("/ws") as two:
        await hear(one)
        await hear(two)
        await client.post("/prompt", json={"prompt": prompt, "client_id": "somebody"})
        for socket in (one, two):
            message = await hear(socket)
            assert message == {
                "type": "status",
                "data": {"status": {"exec_info": {"queue_remaining": 1}}},
            }
    async with client.ws_connect("/ws") as late:
        assert (await hear(late))["data"]["status"]["exec_info"]["queue_remaining"] == 1


async def test_a_slow_reader_is_cut_off_and_nobody_waits_for_it(client: Any, front: Front) -> None:
    hub = front.app[NOTICE_HUB]
    reader, writer = await asyncio.open_connection(client.server.host, client.server.port)
    writer.write(
        b"GET /ws?clientId=slow HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    async with client.ws_connect("/ws?clientId=quick") as quick:
        await hear(quick)
        async with asyncio.timeout(LIMIT_S):
            while len(hub) < 2:
                await asyncio.sleep(0)
        writer.transport.pause_reading()
        text = "x" * 1_000_000
        heavy = NodeExecuting(request_id=RequestId(text), client_id=ClientId("slow"), node_id="3")
        async with asyncio.timeout(LIMIT_S):
            for _ in range(2 * MAX_QUEUED_BYTES // len(text)):
                hub.publish(heavy)
            while len(hub) > 1:
                await asyncio.sleep(0)
        hub.publish(executing("quick"))
        assert (await hear(quick))["type"] == "executing"
    writer.close()


async def test_sockets_are_told_goodbye_when_the_server_stops(serve: Any) -> None:
    async with serve() as client:
        socket = await client.ws_connect("/ws")
        await hear(socket)
        await client.app.shutdown()
        frame = await socket.receive(timeout=LIMIT_S)
        assert frame.type is aiohttp.WSMsgType.CLOSE
        assert frame.data == aiohttp.WSCloseCode.GOING_AWAY
