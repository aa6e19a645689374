"""Who may register and invoke: foreign pages, pretenders, bodies that are too large."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator

import pytest

from ..conftest import Client
from .conftest import GRAPH, pending, prompt_of, put


async def test_a_foreign_page_is_refused(client: Client) -> None:
    headers = {"Host": "127.0.0.1:8188", "Origin": "http://evil.example"}
    for method, path in (
        ("PUT", "/nodeloom/workflows/paint"),
        ("DELETE", "/nodeloom/workflows/paint"),
        ("POST", "/nodeloom/workflows/paint/invoke"),
    ):
        answer = await client.request(method, path, json={"file": "paint.py"}, headers=headers)
        assert answer.status == 403


@pytest.mark.parametrize(
    "headers", [{"Origin": "null"}, {"Content-Type": "text/plain"}, {"Content-Type": ""}]
)
async def test_what_any_page_can_send_unasked_is_refused(
    client: Client, headers: dict[str, str]
) -> None:
    await put(client, file="paint.py")
    json_type = {"Content-Type": "application/json"}
    for method, path in (
        ("PUT", "/nodeloom/workflows/paint"),
        ("POST", "/nodeloom/workflows/paint/invoke"),
        ("DELETE", "/nodeloom/workflows/paint"),
    ):
        answer = await client.request(
            method, path, data=b'{"file": "paint.py"}', headers=json_type | headers
        )
        assert (answer.status, (await answer.json())["error"]["type"]) == (403, "page_refused")
    assert await pending(client) == []


async def test_a_prompt_with_a_model_of_a_users_own_can_not_be_sent_by_any_page(
    with_models: Client,
) -> None:
    prompt = json.dumps({"prompt": await prompt_of(with_models, copies=1)})
    for headers in ({"Content-Type": "text/plain"}, {"Origin": "null"}):
        answer = await with_models.post("/prompt", data=prompt, headers=headers)
        assert answer.status == 403
    plain = json.dumps({"prompt": GRAPH})
    headers = {"Content-Type": "text/plain", "Origin": "null"}  # as ComfyUI's clients do
    assert (await with_models.post("/prompt", data=plain, headers=headers)).status == 200


async def test_a_prompt_can_not_pose_as_an_invocation(client: Client) -> None:
    posing = {"nodeloom": {"workflow": "paint", "version": 1, "nodes": {"p": "2"}}}
    body = {"prompt": GRAPH, "prompt_id": "p", "extra_data": posing}
    assert (await client.post("/prompt", json=body)).status == 200
    told = await (await client.get("/nodeloom/requests/p")).json()
    assert told == {"prompt_id": "p", "number": told["number"], "status": "waiting"}


@pytest.mark.parametrize(("method", "ending"), [("PUT", ""), ("POST", "/invoke")])
async def test_a_body_that_is_too_large_is_refused(
    client: Client, method: str, ending: str
) -> None:
    await put(client, file="paint.py")
    megabytes = 8 if method == "PUT" else 1

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(megabytes):
            yield b" " * (1 << 20)
        yield b'{"file": "paint.py"}'

    padded = b" " * (megabytes << 20) + b'{"file": "paint.py"}'
    for data in (io.BytesIO(padded), pieces()):
        path, headers = f"/nodeloom/workflows/paint{ending}", {"Content-Type": "application/json"}
        answer = await client.request(method, path, data=data, headers=headers)
        assert answer.status == 413
