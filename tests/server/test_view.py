"""GET /view, replayed from a recording of ComfyUI 0.8.0; bytes of users stay inert."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from kit.recorded import entries
from nodeloom.runtime.config import Settings
from nodeloom.server.routes.view import content_type
from PIL import Image


def gradient(mode: str) -> Image.Image:
    image = Image.new(mode, (6, 4))
    for x in range(6):
        for y in range(4):
            image.putpixel((x, y), (40 * x, 60 * y, 200, 90)[: len(image.getbands())])
    return image


@pytest.fixture
def pictures(server_settings: Settings, client: Any) -> Path:
    """The recording's files: names are its own, bytes are ours."""
    folder = server_settings.input_directory / "vv"
    folder.mkdir(parents=True)
    gradient("RGBA").save(folder / "v_0234ed.png")
    gradient("RGB").save(folder / "v_0234ed.jpg")
    (folder / "v_0234ed.html").write_text("<b>x</b>")
    (folder / "v_0234ed.unknownext").write_text("data")
    return folder


VIEWS = [entry for entry in entries("view") if entry["request"]["method"] in ("GET", "HEAD")]


@pytest.mark.parametrize("entry", VIEWS)
async def test_views_are_answered_as_recorded(
    client: Any, pictures: Path, entry: dict[str, Any]
) -> None:
    request, expected = entry["request"], entry["response"]
    headers = request.get("headers", {})
    answer = await client.request(request["method"], request["path"], headers=headers)
    body = await answer.read()
    if expected["status"] == 500:  # a preview of a file that is no picture
        assert answer.status == 400
        assert (await answer.json())["error"]["type"] == "not_an_image"
        return
    assert answer.status == expected["status"]
    if expected["status"] >= 400:
        assert body == b""
        return
    for name in ("content-disposition", "content-type", "accept-ranges"):
        assert answer.headers.get(name) == expected["headers"].get(name)
    assert ("etag" in answer.headers) == ("etag" in expected["headers"])
    if expected.get("image"):
        with Image.open(io.BytesIO(body)) as image:
            shown = {"format": image.format, "size": list(image.size), "mode": image.mode}
        assert shown == expected["image"]
    elif expected["status"] == 206:
        assert len(body) == expected["length"]
        assert answer.headers["Content-Range"].startswith("bytes 0-9/")


async def test_channels_are_what_they_say(client: Any, pictures: Path) -> None:
    query = {"filename": "v_0234ed.png", "subfolder": "vv", "type": "input"}
    whole = gradient("RGBA")
    for channel in ("rgb", "a"):
        answer = await client.get("/view", params=query | {"channel": channel})
        with Image.open(io.BytesIO(await answer.read())) as image:
            if channel == "rgb":
                assert image.tobytes() == whole.convert("RGB").tobytes()
            else:
                assert image.getchannel("A").tobytes() == whole.getchannel("A").tobytes()
                assert image.convert("RGB").getextrema() == ((0, 0), (0, 0), (0, 0))


@pytest.mark.parametrize("quality", ["0", "-5", "1000", "9" * 5000, "x", "", "²"])
async def test_any_quality_gives_a_picture(client: Any, pictures: Path, quality: str) -> None:
    query = {"filename": "v_0234ed.png", "subfolder": "vv", "type": "input"}
    answer = await client.get("/view", params=query | {"preview": f"jpeg;{quality}"})
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "image/jpeg"


@pytest.mark.parametrize("name", ["x.html", "x.htm", "x.xhtml", "x.js", "x.mjs", "x.css", "x.svg"])
async def test_what_a_browser_would_run_is_served_as_bytes(
    client: Any, server_settings: Settings, name: str
) -> None:
    (server_settings.output_directory / name).write_text("<script>alert(1)</script>")
    answer = await client.get("/view", params={"filename": name})
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.png", "image/png"),
        ("a.mp4", "video/mp4"),
        ("a.json", "application/json"),
        ("a.txt", "text/plain"),
        ("a.svgz", "application/octet-stream"),
        ("a.xml", "application/octet-stream"),
        ("a.pdf", "application/octet-stream"),
        ("a.PNG", "image/png"),
        ("a", "application/octet-stream"),
    ],
)
def test_types_come_from_the_suffix_but_none_that_runs(name: str, expected: str) -> None:
    assert content_type(name) == expected


async def test_a_link_out_of_the_folder_is_refused(
    client: Any, server_settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (server_settings.output_directory / "link.txt").symlink_to(tmp_path / "secret.txt")
    answer = await client.get("/view", params={"filename": "link.txt"})
    assert answer.status == 403
    assert await answer.read() == b""


async def test_names_with_quotes_and_letters_of_all_kinds_are_told_safely(
    client: Any, server_settings: Settings
) -> None:
    (server_settings.output_directory / 'a"b ü.png').write_bytes(b"x")
    answer = await client.get("/view", params={"filename": 'a"b ü.png'})
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == 'filename="a\\"b ü.png"'
    assert (await client.get("/view", params={"filename": "a\r\nX: y"})).status == 400


def bomb(side: int) -> bytes:
    """A small PNG that claims side x side pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    head = struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize("side", [9_000, 12_000, 60_000])
async def test_an_image_bomb_is_refused_before_it_is_decoded(
    client: Any, server_settings: Settings, side: int
) -> None:
    (server_settings.output_directory / "bomb.png").write_bytes(bomb(side))
    for query in ({"preview": "webp"}, {"channel": "rgb"}):
        answer = await client.get("/view", params={"filename": "bomb.png"} | query)
        assert answer.status == 400
        assert (await answer.json())["error"]["type"] == "image_too_large"


async def test_a_truncated_picture_is_refused(client: Any, server_settings: Settings) -> None:
    file = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(file, format="PNG")
    (server_settings.output_directory / "cut.png").write_bytes(file.getvalue()[:500])
    answer = await client.get("/view", params={"filename": "cut.png", "preview": "webp"})
    assert answer.status == 400
