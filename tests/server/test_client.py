"""What a client does with names and answers of a server that it need not trust."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from nodeloom.server.client import (
    FieldProblem,
    PromptRefused,
    SavedPicture,
    ServerClient,
    ServerUnreachable,
    check_address,
    saved_pictures,
)
from nodeloom.server.files import UnsafeName


async def greet(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for _ in socket:
        break
    return socket


async def view(request: web.Request) -> web.Response:
    return web.Response(body=request.query["filename"].encode() + b" of the server")


def foreign_server(status: int, body: str) -> TestServer:
    """A server of another make: it answers every POST /prompt with the same."""

    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/ws", greet)
    app.router.add_get("/view", view)
    app.router.add_post("/prompt", refuse)
    return TestServer(app)


def picture(filename: str, subfolder: str = "") -> SavedPicture:
    return SavedPicture(filename=filename, subfolder=subfolder, type="output")


@pytest.mark.parametrize(
    ("filename", "subfolder"),
    [("../out.png", ""), ("/etc/out.png", ""), ("a.png", "../.."), ("a\0.png", "")],
)
async def test_a_name_that_leaves_the_folder_is_refused(
    tmp_path: Path, filename: str, subfolder: str
) -> None:
    client = ServerClient("127.0.0.1:1")
    with pytest.raises(UnsafeName):
        await client.download(picture(filename, subfolder), tmp_path)


async def test_a_picture_never_replaces_another_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"mine")
    async with (
        foreign_server(200, "{}") as server,
        ServerClient(str(server.make_url(""))) as client,
    ):
        first = await client.download(picture("a.png"), tmp_path)
        second = await client.download(picture("a.png"), tmp_path)
        below = await client.download(picture("a.png", "sub/folder"), tmp_path)
    assert first == second == tmp_path / "a (1).png"
    assert below == tmp_path / "sub" / "folder" / "a.png"
    assert (tmp_path / "a.png").read_bytes() == b"mine"
    assert first.read_bytes() == b"a.png of the server"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, "no JSON", "the server answered 500: no JSON"),
        (429, '{"error": {"message": "full", "details": "100 wait"}}', "full: 100 wait"),
        (400, '{"error": "old form"}', "the server answered 400: old form"),
        (200, '{"unexpected": 1}', "the server answered 200: None"),
    ],
)
async def test_refusals_of_any_form_are_told(status: int, body: str, message: str) -> None:
    async with foreign_server(status, body) as server, ServerClient(str(server.make_url(""))) as it:
        with pytest.raises(PromptRefused) as refused:
            await it.submit({}, "t")
    assert refused.value.message == message
    assert refused.value.problems == ()


def test_problems_read_as_node_field_reason() -> None:
    problem = FieldProblem(node_id="3", class_type="KSampler", field="steps", reason="too few")
    assert problem.line() == "KSampler #3, steps: too few"


@pytest.mark.parametrize("address", ["", "ftp://host", "http://"])
def test_what_is_no_address_is_said(address: str) -> None:
    with pytest.raises(ServerUnreachable, match="no address"):
        check_address(address)


def test_an_address_needs_no_scheme() -> None:
    assert check_address("localhost:8188/") == "http://localhost:8188"


def test_only_pictures_of_the_asked_kind_are_taken_from_a_history_entry() -> None:
    kept = {"filename": "a.png", "subfolder": "s", "type": "output"}
    temp = {"filename": "b.png", "subfolder": "", "type": "temp"}
    entry = {"outputs": {"9": {"images": [kept, temp]}, "10": {"text": ["x"]}}}
    assert saved_pictures(entry) == [picture("a.png", "s")]
