"""Origin check, CORS, body limit, cache headers: as recorded from ComfyUI 0.8.0."""

from __future__ import annotations

import io
from typing import Any

import pytest
from kit.recorded import entries
from nodeloom.runtime.config import Settings
from nodeloom.server.app import build_front
from nodeloom.server.middleware import cache_rule, is_foreign


@pytest.mark.parametrize("entry", entries("origin_checks"))
async def test_origins_are_judged_as_recorded(client: Any, entry: dict[str, Any]) -> None:
    port = client.server.port
    headers = {
        name: value.replace(":28188", f":{port}")
        for name, value in entry["request"].get("headers", {}).items()
    }
    request = entry["request"]
    answer = await client.request(request["method"], request["path"], headers=headers)
    assert answer.status == entry["response"]["status"]
    if "json" in entry["response"]:
        assert await answer.json() == entry["response"]["json"]
    else:
        assert await answer.read() == b""


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("[::1]:8188", "http://[::1]:8188", False),
        ("[::1]:8188", "http://[::1]:9", True),
        ("127.0.0.2:8188", "http://127.0.0.1:8188", True),
        ("LOCALHOST:8188", "http://localhost:8188", False),
        ("127.0.0.1:8188", "http://127.0.0.1.evil.example:8188", True),
        ("127.0.0.1:8188", "http://evil.example:99999", True),
        ("[::1", "http://evil.example", True),
        ("127.0.0.1:8188", "", False),
        ("", "http://evil.example", False),
    ],
)
def test_odd_hosts_and_origins(host: str, origin: str, expected: bool) -> None:
    assert is_foreign(host, origin) is expected


async def test_a_foreign_page_cannot_open_a_socket(client: Any) -> None:
    answer = await client.get("/ws", headers={"Origin": "http://evil.example"})
    assert answer.status == 403


async def test_with_the_cors_flag_headers_stand_for_the_check(serve: Any) -> None:
    # recorded from ComfyUI 0.8.0 with --enable-cors-header
    headers = {
        "Access-Control-Allow-Origin": "https://app.example",
        "Access-Control-Allow-Methods": "POST, GET, DELETE, PUT, OPTIONS, PATCH",
        "Access-Control-Allow-Headers": "Content-Type, Authorization",
        "Access-Control-Allow-Credentials": "true",
    }
    async with serve(enable_cors_header="https://app.example") as client:
        foreign = {"Origin": "http://evil.example"}
        for method, path in (("GET", "/features"), ("OPTIONS", "/nosuch"), ("GET", "/nosuch")):
            answer = await client.request(method, path, headers=foreign)
            assert answer.status == (404 if (method, path) == ("GET", "/nosuch") else 200)
            assert {name: answer.headers.get(name) for name in headers} == headers
        refused = await client.post("/nosuch")
        assert refused.status == 405
        assert "Access-Control-Allow-Origin" not in refused.headers


async def test_a_body_over_the_limit_is_refused_before_it_is_read(serve: Any) -> None:
    async with serve(max_upload_size=1.0) as client:
        too_long = b" " * (1024 * 1024 + 1)
        for path in ("/prompt", "/queue", "/upload/image", "/nosuch"):
            answer = await client.post(path, data=io.BytesIO(too_long))
            assert answer.status == 413
            assert await answer.text() == "Maximum request body size 1048576 exceeded."

        async def pieces() -> Any:
            for _ in range(3):
                yield b" " * 500_000

        answer = await client.post("/prompt", data=pieces())  # no Content-Length
        assert answer.status == 413


@pytest.mark.parametrize(
    ("path", "status", "rule"),
    [
        # recorded from ComfyUI 0.8.0: static_files
        ("/scripts/app.js", 200, "no-cache"),
        ("/extensions/nosuch/x.js", 404, "no-cache"),
        ("/user.css", 404, "no-cache"),
        ("/templates/index.json", 200, "no-cache"),
        ("/nosuch.png", 404, "public, max-age=86400"),
        ("/docs/KSampler/en.md", 200, None),
        ("/favicon.ico", 404, None),
        ("/view", 200, None),
        ("/a.webp", 304, None),
        ("/a.webp", 307, "no-cache"),
        ("/a.PNG", 200, "public, max-age=86400"),
    ],
)
def test_cache_headers_follow_the_path(path: str, status: int, rule: str | None) -> None:
    assert cache_rule(path, status) == rule


async def test_building_an_application_touches_no_folder(server_settings: Settings) -> None:
    front = build_front(server_settings)
    assert not server_settings.base_directory.exists()
    await front.coordinator.stop()
