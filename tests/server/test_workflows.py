"""Registration and invocation over HTTP without executors: what is refused, stored and listed."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from kit.workflow_server import EXAMPLES
from nodeloom.runtime.config import Settings
from nodeloom.runtime.errors import SettingsProblem
from nodeloom.server.app_keys import REGISTRAR
from nodeloom.server.workflows.user_files import UserFiles

from .conftest import Client, Serve

FLOW = """
from nodeloom import *

@workflow
def paint(width: int = 16, color: int = 1, copies: int = 1):
    images = Node("EmptyImage")(width=width, height=16, color=color)
    for _ in range(copies):
        images = Node("ImageInvert")(images)
    return images
"""
GRAPH: dict[str, Any] = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 16, "height": 16, "color": 1}},
    "2": {"class_type": "SaveImage", "inputs": {"filename_prefix": "a", "images": ["1", 0]}},
}
GRAPH["1"]["inputs"]["batch_size"] = 1
WIDTH = {"width": {"node": "1", "input": "width"}}


def picture() -> bytes:
    """A PNG."""
    file = io.BytesIO()
    PIL.Image.new("RGB", (8, 8)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    folder = tmp_path / "flows"
    (folder / "more").mkdir(parents=True)
    (folder / "paint.py").write_text(FLOW, "utf-8")
    (folder / "more" / "deep.py").write_text(FLOW, "utf-8")
    return folder


@pytest.fixture
async def client(serve: Serve, flows: Path) -> AsyncIterator[Client]:
    async with serve(workflow_directory=flows) as client:
        yield client


async def put(client: Client, name: str = "paint", **body: object) -> tuple[int, dict[str, Any]]:
    answer = await client.put(f"/nodeloom/workflows/{name}", json=body)
    return answer.status, await answer.json()


async def invoke(client: Client, name: str = "paint", **body: object) -> tuple[int, dict[str, Any]]:
    answer = await client.post(f"/nodeloom/workflows/{name}/invoke", json=body)
    return answer.status, await answer.json()


async def pending(client: Client) -> list[Any]:
    queue = await (await client.get("/queue")).json()
    return list(queue["queue_pending"])


async def test_a_file_is_registered_once_per_content(client: Client, flows: Path) -> None:
    status, first = await put(client, file="paint.py")
    assert (status, first["version"], first["versions"]) == (201, 1, [1])
    assert (first["kind"], first["workflow"]) == ("python", "paint")
    assert (await put(client, file="paint.py"))[0] == 200
    (flows / "paint.py").write_text(FLOW + "\n# changed", "utf-8")
    status, second = await put(client, file="paint.py")
    assert (status, second["version"], second["versions"]) == (201, 2, [1, 2])
    assert second["sha256"] != first["sha256"]
    status, deep = await put(client, file="more/deep.py")
    assert (status, deep["version"], deep["file"]) == (201, 3, "more/deep.py")
    shown = await (await client.get("/api/nodeloom/workflows/paint/versions/1")).json()
    assert shown["sha256"] == first["sha256"]


async def test_an_invocation_is_stored_bound_with_what_it_was_invoked_as(client: Client) -> None:
    await put(client, file="paint.py")
    status, told = await invoke(
        client, inputs={"width": 32, "copies": 2}, client_id="me", prompt_id="p", front=True
    )
    nodes = {"image": "output-image"}
    assert status == 200
    assert told == {
        "prompt_id": "p",
        "number": 0,
        "status": "waiting",
        "workflow": "paint",
        "version": 1,
        "nodes": nodes,
    }
    ((_, prompt_id, prompt, extra, roots),) = await pending(client)
    assert (prompt_id, extra["client_id"], roots) == ("p", "me", ["output-image"])
    assert extra["nodeloom"] == {"workflow": "paint", "version": 1, "nodes": nodes}
    assert [n["class_type"] for n in prompt.values()].count("ImageInvert") == 2
    assert prompt["EmptyImage-1"]["inputs"]["width"] == 32
    assert (await invoke(client, prompt_id="p"))[0] == 409


async def test_data_never_runs_the_text_again_and_structure_does(
    client: Client, flows: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    count = f"with open({str(runs)!r}, 'a') as file: file.write('x')"
    (flows / "paint.py").write_text(f"{FLOW}\n{count}\n", "utf-8")
    await put(client, file="paint.py")
    for values in ({"width": 17}, {"color": 9}):
        assert (await invoke(client, inputs=values))[0] == 200
    assert runs.read_text() == "x"
    for values in ({"copies": 3}, {"copies": 3, "color": 5}, {"copies": 1}):
        assert (await invoke(client, inputs=values))[0] == 200
    assert runs.read_text() == "xx"
    assert len(await pending(client)) == 5


async def test_the_queues_limit_holds_for_invocations(serve: Serve, flows: Path) -> None:
    async with serve(workflow_directory=flows, max_queue=1) as client:
        await put(client, file="paint.py")
        assert (await invoke(client))[0] == 200
        assert (await invoke(client))[0] == 429


@pytest.mark.parametrize(
    ("file", "status", "words"),
    [
        ("none.py", 400, "there is no file 'none.py'"),
        ("paint.txt", 400, "is no Python file"),
        ("../secret.py", 400, "may not leave its folder"),
        ("/etc/passwd.py", 400, "may not be absolute"),
        ("link.py", 400, "may not leave its folder"),
        ("folder_link/secret.py", 400, "may not leave its folder"),
        ("a\0b.py", 400, "control characters"),
        ("more", 400, "is no Python file"),
    ],
)
async def test_only_files_of_the_folder_run(
    client: Client, flows: Path, file: str, status: int, words: str
) -> None:
    (flows.parent / "secret.py").write_text("raise SystemExit('it ran')", "utf-8")
    (flows / "link.py").symlink_to(flows.parent / "secret.py")
    (flows / "folder_link").symlink_to(flows.parent)
    answered, refused = await put(client, file=file)
    assert answered == status
    assert words in refused["error"]["message"]


@pytest.mark.parametrize(
    ("text", "type_", "words"),
    [
        ("import os; os._exit(7)", "trace_failed", "exited with 7"),
        ("import os; os.kill(os.getpid(), 11)", "trace_failed", "signal 11 (SIGSEGV)"),
        ("\nraise SystemExit('bye')", "composition_error", "x.py:2: SystemExit: bye"),
        ("\n\n1/0", "composition_error", "x.py:3: ZeroDivisionError"),
        ("def", "composition_error", "x.py:1: this is no Python"),
        ("print('noise')\nimport sys; sys.stdout.write('x' * 99)", "composition_error", "none"),
        ("x = bytearray(2**40)", "composition_error", "x.py:1: MemoryError"),
        ("import sys; sys.stdin.read(); input()", "composition_error", "EOFError"),
    ],
)
async def test_what_a_text_does_is_its_own_fault(
    client: Client, flows: Path, text: str, type_: str, words: str
) -> None:
    (flows / "x.py").write_text(text, "utf-8")
    status, refused = await put(client, file="x.py")
    assert (status, refused["error"]["type"]) == (400, type_)
    assert words in refused["error"]["message"]
    assert (await put(client, file="paint.py"))[0] == 201


async def test_a_text_without_end_is_stopped(client: Client, flows: Path) -> None:
    (flows / "x.py").write_text("while True: pass", "utf-8")
    client.server.app[REGISTRAR]._tracer.limit_s = 1.5  # type: ignore[union-attr]  # a TestServer
    status, refused = await put(client, file="x.py")
    assert (status, refused["error"]["type"]) == (400, "trace_failed")
    assert "not traced after 1.5 s" in refused["error"]["message"]


async def test_a_composition_error_says_line_and_types(client: Client, flows: Path) -> None:
    text = FLOW.replace("return images", 'return Vae("dream.safetensors").decode(images)')
    (flows / "x.py").write_text(text, "utf-8")
    status, refused = await put(client, file="x.py")
    line = text.splitlines().index('    return Vae("dream.safetensors").decode(images)') + 1
    told = refused["error"]["extra_info"]
    assert (status, told["fault"], told["line"]) == (400, "wrong_type", line)
    assert (told["file"], told["expected"], told["received"]) == ("x.py", "LATENT", "IMAGE")


async def test_python_runs_only_where_the_owner_says_so(client: Client, serve: Serve) -> None:
    async with serve() as closed:
        status, refused = await put(closed, file="paint.py")
        assert (status, refused["error"]["type"]) == (403, "user_code_refused")
        assert "--workflow-directory" in refused["error"]["message"]
        assert (await put(closed, "graph", prompt=GRAPH))[0] == 201


async def test_models_of_users_own_need_a_flag_of_their_own(
    client: Client, serve: Serve, flows: Path, tmp_path: Path
) -> None:
    (flows / "own.py").write_text((EXAMPLES / "custom_model.py").read_text("utf-8"), "utf-8")
    status, refused = await put(client, file="own.py")
    assert (status, refused["error"]["type"]) == (403, "user_code_refused")
    assert "--allow-user-models" in refused["error"]["message"]
    fields = {"workflow_directory": flows, "allow_user_models": True}
    async with serve(**fields, user_directory=tmp_path / "other") as open_:
        (tmp_path / "base" / "input" / "x.png").write_bytes(picture())
        assert (await put(open_, file="own.py"))[0] == 201
        assert (await invoke(open_, inputs={"image": "x.png"}))[0] == 200
        ((_, _, prompt, _, _),) = await pending(open_)
        assert (await open_.post("/prompt", json={"prompt": prompt})).status == 200
        (flows / "own.py").unlink()
        status, refused = await invoke(open_, inputs={"image": "x.png"})
        assert (status, refused["error"]["type"]) == (400, "invocation_rejected")
    answer = await client.post("/prompt", json={"prompt": prompt})
    assert answer.status == 400
    assert "--allow-user-models" in await answer.text()


async def test_a_foreign_page_is_refused(client: Client) -> None:
    headers = {"Host": "127.0.0.1:8188", "Origin": "http://evil.example"}
    for method, path in (
        ("PUT", "/nodeloom/workflows/paint"),
        ("DELETE", "/nodeloom/workflows/paint"),
        ("POST", "/nodeloom/workflows/paint/invoke"),
    ):
        answer = await client.request(method, path, json={"file": "paint.py"}, headers=headers)
        assert answer.status == 403


async def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(9):
            yield b" " * (1 << 20)
        yield b'{"file": "paint.py"}'

    padded = b" " * (9 << 20) + b'{"file": "paint.py"}'
    for data in (io.BytesIO(padded), pieces()):
        answer = await client.put("/nodeloom/workflows/paint", data=data)
        assert answer.status == 413


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"file": "paint.py", "prompt": GRAPH},
        {"file": "paint.py", "parameters": WIDTH},
        {"prompt": GRAPH, "workflow": "paint"},
        {"prompt": {}},
        {"file": 3},
        {"text": "print()"},
        {"prompt": GRAPH, "parameters": {"width": "1.width"}},
        {"prompt": GRAPH, "parameters": {"width": {"node": "9", "input": "width"}}},
        {"prompt": GRAPH, "parameters": {"width": {"node": "1", "input": "depth"}}},
        {"prompt": GRAPH, "parameters": {"a b": {"node": "1", "input": "width"}}},
        {"prompt": GRAPH, "parameters": {"images": {"node": "2", "input": "images"}}},
        {"prompt": GRAPH, "parameters": WIDTH | {"again": WIDTH["width"]}},
        {"prompt": GRAPH, "outputs": {"picture": "1"}},
        {"prompt": GRAPH, "outputs": {}},
        {"prompt": {"1": GRAPH["1"]}},
        {"prompt": GRAPH | {"3": {"class_type": "Nothing", "inputs": {}}}},
        {"prompt": GRAPH | {"1": {"class_type": "EmptyImage", "inputs": {}}}},
    ],
)
async def test_a_registration_that_makes_no_sense_is_refused(
    client: Client, body: dict[str, object]
) -> None:
    status, refused = await put(client, **body)
    assert status == 400
    assert refused["error"]["message"]
    assert await (await client.get("/nodeloom/workflows")).json() == []


@pytest.mark.parametrize("name", ["-a", "a%20b", "%C3%A4", "a" * 101])
async def test_a_name_that_makes_no_sense_is_refused(client: Client, name: str) -> None:
    assert (await client.put(f"/nodeloom/workflows/{name}", json={"prompt": GRAPH})).status == 400


async def test_a_graph_is_bound_with_values_or_what_it_has(client: Client) -> None:
    inputs = {"width": WIDTH["width"], "color": {"node": "1", "input": "color"}}
    graph = GRAPH | {"1": {"class_type": "EmptyImage", "inputs": dict(GRAPH["1"]["inputs"])}}
    del graph["1"]["inputs"]["width"]  # the parameter must be given
    status, told = await put(client, "graph", prompt=graph, parameters=inputs, outputs={"p": "2"})
    assert (status, told["outputs"]) == (201, ["p"])
    width, color = told["inputs"]
    assert (width["type"], width["is_required"], width["max"] > 1000) == ("INT", True, True)
    assert (color["default"], color["is_required"]) == (1, False)
    status, refused = await invoke(client, "graph", inputs={"color": "red"})
    reasons = {p["input"]: p["reason"] for p in refused["error"]["extra_info"]["problems"]}
    assert status == 400
    assert reasons.keys() == {"width", "color"}
    assert (await invoke(client, "graph", inputs={"width": 24, "color": 7}))[0] == 200
    ((_, _, prompt, _, _),) = await pending(client)
    assert prompt["1"]["inputs"] == {"width": 24, "height": 16, "batch_size": 1, "color": 7}
    shown = await (await client.get("/nodeloom/workflows/graph/versions/1")).json()
    assert (shown["prompt"], shown["parameters"], shown["nodes"]) == (graph, inputs, {"p": "2"})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"inputs": []}, 400),
        ({"inputs": {}, "version": "1"}, 400),
        ({"version": 2}, 404),
        ({"wait": True, "timeout_s": -1}, 400),
        ({"timeout_s": 1e9}, 400),
        ({"client_id": 5}, 400),
        ({"color": 1}, 400),
        ({"inputs": {"width": 10**30}}, 400),
        ({"inputs": {"copies": 10**6}}, 400),
        ({"inputs": {"width": 0}}, 400),
    ],
)
async def test_an_invocation_that_makes_no_sense_is_refused(
    client: Client, body: dict[str, object], status: int
) -> None:
    await put(client, file="paint.py")
    assert (await invoke(client, **body))[0] == status
    assert await pending(client) == []


async def test_a_file_must_be_the_one_that_is_meant(client: Client) -> None:
    status, refused = await put(client, file="paint.py", sha256="0" * 64)
    assert (status, refused["error"]["type"]) == (409, "registration_conflict")
    status, told = await put(client, file="paint.py")
    assert (await put(client, file="paint.py", sha256=told["sha256"]))[0] == 200


async def test_who_waits_hears_that_the_request_was_taken_out(client: Client) -> None:
    await put(client, file="paint.py")
    waiting = asyncio.ensure_future(invoke(client, prompt_id="w", wait=True))
    while not await pending(client):
        await asyncio.sleep(0.01)
    await client.post("/queue", json={"delete": ["w"]})
    status, told = await waiting
    assert (status, told) == (200, {"prompt_id": "w", "status": "unknown"})


@pytest.mark.parametrize("kind", ["input", "output", "temp", "user"])
def test_clients_can_not_write_into_the_folder(server_settings: Settings, kind: str) -> None:
    folder: Path = getattr(server_settings, f"{kind}_directory")
    (folder / "below").mkdir(parents=True)
    fields = {n: getattr(server_settings, n) for n in server_settings.__struct_fields__}
    for place in (folder, folder / "below", folder.parent):
        with pytest.raises(SettingsProblem, match="overlap"):
            UserFiles.of(Settings(**fields | {"workflow_directory": place}))
