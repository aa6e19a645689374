"""POST /upload/image, replayed from a recording of ComfyUI 0.8.0, and what it must refuse."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kit.recorded import entries
from nodeloom.runtime.config import Settings
from nodeloom.server.routes import upload

BOUNDARY = "recboundary"


def form_of(request: dict[str, Any]) -> aiohttp.FormData:
    form = aiohttp.FormData(quote_fields=False)
    for part in request["multipart"]:
        if "content" in part:
            content = part["content"].encode()
            options = {"content_type": part["content_type"], "filename": part["filename"]}
            form.add_field(part["name"], content, **options)
        else:
            form.add_field(part["name"], part["value"])
    return form


def raw_body(filename: str, content: bytes = b"x") -> bytes:
    head = f'Content-Disposition: form-data; name="image"; filename="{filename}"'.encode()
    return b"--%b\r\n%b\r\nContent-Type: image/png\r\n\r\n%b\r\n--%b--\r\n" % (
        BOUNDARY.encode(),
        head,
        content,
        BOUNDARY.encode(),
    )


async def post_raw(client: Any, body: bytes | AsyncIterator[bytes]) -> Any:
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return await client.post("/upload/image", data=body, headers=headers)


async def replay(client: Any, entry: dict[str, Any]) -> Any:
    request = entry["request"]
    if request["method"] == "GET":
        return await client.get(request["path"])
    if "multipart" in request:
        return await client.post(request["path"], data=form_of(request))
    if "json" in request:
        return await client.post(request["path"], json=request["json"])
    named = re.search(r"filename='([^']*)'", entry["label"])
    assert named is not None
    return await post_raw(client, raw_body(named.group(1), entry["label"].encode()))


async def test_the_recorded_uploads_are_answered_as_recorded(client: Any) -> None:
    """In order, as each depends on those before; where ComfyUI answered 500 we answer 400."""
    for entry in entries("upload_image"):
        answer = await replay(client, entry)
        expected = entry["response"]
        if expected["status"] == 500:
            assert answer.status == 400, entry
            continue
        assert answer.status == expected["status"], entry
        if "json" in expected:
            assert await answer.json() == expected["json"]
        else:
            assert await answer.read() == b""


async def test_bytes_are_stored_as_they_are_and_nothing_is_left_behind(
    client: Any, server_settings: Settings
) -> None:
    content = bytes(range(256)) * 3000
    answer = await post_raw(client, raw_body("a b ü.bin", content))
    assert (await answer.json())["name"] == "a b ü.bin"
    stored = server_settings.input_directory / "a b ü.bin"
    assert stored.read_bytes() == content
    assert [path.name for path in server_settings.input_directory.iterdir()] == ["a b ü.bin"]


async def test_fields_may_come_after_the_file(client: Any, server_settings: Settings) -> None:
    form = aiohttp.FormData()
    form.add_field("image", b"new", filename="x.png")
    form.add_field("subfolder", "deep/er")
    form.add_field("type", "temp")
    answer = await client.post("/upload/image", data=form)
    assert await answer.json() == {"name": "x.png", "subfolder": "deep/er", "type": "temp"}
    assert (server_settings.temp_directory / "deep/er/x.png").read_bytes() == b"new"


@pytest.mark.parametrize(
    "filename",
    ["../evil.png", "a/../../../evil.png", "..", ".", "x\0.png", "x" * 300, "out/evil.png"],
)
async def test_names_that_leave_the_folder_are_refused(
    client: Any, server_settings: Settings, filename: str
) -> None:
    outside = server_settings.base_directory / "outside"
    outside.mkdir()
    (server_settings.input_directory / "out").symlink_to(outside)
    answer = await post_raw(client, raw_body(filename))
    assert answer.status == 400
    assert list(outside.iterdir()) == []
    assert not list(Path(server_settings.base_directory).glob("**/evil.png"))
    assert [path.name for path in server_settings.input_directory.iterdir()] == ["out"]


async def test_a_broken_form_leaves_nothing_behind(client: Any, server_settings: Settings) -> None:
    whole = raw_body("x.png", b"y" * 100_000)
    for body in (b"", whole[:50_000], b"no form at all", whole.replace(b"recboundary", b"other")):
        answer = await post_raw(client, body)
        assert answer.status == 400
    assert list(server_settings.input_directory.iterdir()) == []


async def test_a_stream_over_the_limit_is_cut_off(client: Any, server_settings: Settings) -> None:
    body = raw_body("big.bin", b"z" * (server_settings.max_upload_bytes + 1))

    async def pieces() -> Any:
        for start in range(0, len(body), 4_000_000):
            yield body[start : start + 4_000_000]

    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    answer = await client.post("/upload/image", data=pieces(), headers=headers)
    assert answer.status == 413
    assert list(server_settings.input_directory.iterdir()) == []


async def test_a_form_of_too_many_or_too_long_fields_is_refused(client: Any) -> None:
    many = aiohttp.FormData()
    for index in range(200):
        many.add_field(f"field{index}", "x")
    many.add_field("image", b"x", filename="x.png")
    long = aiohttp.FormData()
    long.add_field("image", b"x", filename="x.png")
    long.add_field("subfolder", "x" * 100_000)
    for form in (many, long):
        assert (await client.post("/upload/image", data=form)).status == 400


async def test_an_upload_that_stops_halfway_is_ended_and_leaves_nothing(
    client: Any, server_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "CHUNK_TIMEOUT_S", 0.3)
    whole = raw_body("half.png", b"x" * 1000)
    stopped = asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield whole[:500]
        await stopped.wait()

    answer = await post_raw(client, half())
    stopped.set()
    assert answer.status == 408
    assert list(server_settings.input_directory.iterdir()) == []
