"""Queue, history, interrupt and free, as far as they need no executor."""

from __future__ import annotations

from typing import Any

import pytest

DRAW = {
    "1": {
        "class_type": "EmptyImage",
        "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": 1},
    },
    "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
}


async def waiting(client: Any) -> list[str]:
    queue = await (await client.get("/queue")).json()
    return sorted(item[1] for item in queue["queue_pending"])


async def fill(client: Any, *ids: str) -> None:
    for prompt_id in ids:
        answer = await client.post("/prompt", json={"prompt": DRAW, "prompt_id": prompt_id})
        assert answer.status == 200


async def test_waiting_requests_are_deleted_by_id_and_cleared(client: Any) -> None:
    await fill(client, "a", "b", "c")
    answer = await client.post("/queue", json={"delete": ["a", "unknown"]})
    assert (answer.status, await answer.read()) == (200, b"")
    assert await waiting(client) == ["b", "c"]
    await client.post("/queue", json={"clear": False})
    assert await waiting(client) == ["b", "c"]
    await client.post("/queue", json={"clear": True, "delete": ["b"]})
    assert await waiting(client) == []
    assert await (await client.get("/history/a")).json() == {}


async def test_an_id_is_free_again_once_its_request_is_deleted(client: Any) -> None:
    await fill(client, "a")
    await client.post("/queue", json={"delete": ["a"]})
    await fill(client, "a")
    assert await waiting(client) == ["a"]


@pytest.mark.parametrize("path", ["/queue", "/history"])
async def test_a_body_of_another_shape_is_refused(client: Any, path: str) -> None:
    for body in (b"", b"not json", b"[]", b'{"delete": "a"}', b'{"delete": [1]}'):
        answer = await client.post(path, data=body)
        assert answer.status == 400
        assert "error" in await answer.json()
    for body in (b"{}", b'{"delete": null}', b'{"delete": []}'):
        assert (await client.post(path, data=body)).status == 200


async def test_an_empty_history(client: Any) -> None:
    for query in ("", "?max_items=5", "?offset=-1", "?max_items=0", "?max_items=99999999999999999"):
        answer = await client.get("/history" + query)
        assert (answer.status, await answer.json()) == (200, {})
    for query in ("?max_items=abc", "?offset=1.5", "?max_items=", "?offset=" + "9" * 5000):
        assert (await client.get("/history" + query)).status == 400
    assert await (await client.get("/history/unknown")).json() == {}
    assert (await client.post("/history", json={"clear": True})).status == 200


async def test_interrupt_tolerates_any_body_but_an_array(client: Any) -> None:
    await fill(client, "a")
    for body in (b"", b"not json", b"{}", b'{"prompt_id": "a"}', b'{"prompt_id": "unknown"}'):
        answer = await client.post("/interrupt", data=body)
        assert (answer.status, await answer.read()) == (200, b"")
    for body in (b"[]", b'{"prompt_id": []}'):
        assert (await client.post("/interrupt", data=body)).status == 400
    assert await waiting(client) == ["a"]  # a waiting request is not touched


async def test_free_answers_without_a_body(client: Any) -> None:
    for body in ({}, {"unload_models": True}, {"free_memory": True}):
        answer = await client.post("/free", json=body)
        assert (answer.status, await answer.read()) == (200, b"")
    assert (await client.post("/free", data=b"")).status == 400


async def test_a_waiting_request_shows_its_graph(client: Any) -> None:
    await fill(client, "a")
    answer = await client.get("/nodeloom/requests/a/graph")
    assert answer.status == 200
    graph = await answer.json()
    assert graph["request_id"] == "a"
    assert [node["op"] for node in graph["nodes"]] == ["empty_image", "save_image"]
    assert graph["nodes"][1]["inputs"][0]["source"] == graph["nodes"][0]["id"]
    assert (await client.get("/nodeloom/requests/unknown/graph")).status == 404
