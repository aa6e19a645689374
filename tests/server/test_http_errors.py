"""Unknown paths, wrong methods, twins under /api: as recorded from ComfyUI 0.8.0."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kit.recorded import entries

# ComfyUI's front end has a folder /assets; our page has none.
RECORDED = [entry for entry in entries("http_errors") if entry["request"]["path"] != "/assets"]


@pytest.mark.parametrize("entry", RECORDED)
async def test_odd_requests_are_answered_as_recorded(client: Any, entry: dict[str, Any]) -> None:
    request, expected = entry["request"], entry["response"]
    answer = await client.request(request["method"], request["path"])
    assert answer.status == expected["status"]
    assert answer.headers["Content-Type"] == expected["headers"]["content-type"]
    assert answer.headers.get("Allow") == expected["headers"].get("allow")
    if "text" in expected:
        assert await answer.text() == expected["text"]
    elif expected["status"] == 404:
        assert await answer.read() == b""


@pytest.mark.parametrize(
    "path",
    [
        "/prompt",
        "/queue",
        "/history",
        "/history/x",
        "/object_info",
        "/embeddings",
        "/models",
        "/models/vae",
        "/system_stats",
        "/features",
        "/nodeloom/executors",
        "/",
    ],
)
async def test_every_route_has_a_twin_under_api(client: Any, path: str) -> None:
    plain = await client.get(path)
    twin = await client.get("/api" + path)
    assert plain.status == twin.status == 200
    assert plain.headers["Content-Type"] == twin.headers["Content-Type"]
    assert set(plain.headers) == set(twin.headers)


async def test_the_page_is_never_cached_and_runs_only_its_own_scripts(client: Any) -> None:
    answer = await client.get("/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html"
    assert answer.headers["Cache-Control"] == "no-cache"
    assert answer.headers["Pragma"] == "no-cache"
    assert answer.headers["Expires"] == "0"
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


async def test_only_files_of_the_page_are_served(client: Any) -> None:
    script = await client.get("/app.js")
    assert script.status == 200
    assert script.headers["Content-Type"] == "text/javascript"
    assert script.headers["Cache-Control"] == "no-cache"
    assert (await client.get("/api/app.js")).status == 404


@pytest.mark.parametrize(
    "target",
    ["/__init__.py", "/../server/app.py", "/%2e%2e/server/app.py", "//etc/passwd", "/%00.js"],
)
async def test_no_path_leaves_the_page(client: Any, target: str) -> None:
    """Written to the socket as it is: client libraries would tidy the path up."""
    reader, writer = await asyncio.open_connection(client.server.host, client.server.port)
    request = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    writer.write(request.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))
    assert b"import" not in answer
