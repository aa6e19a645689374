"""Registration and invocation over HTTP without executors: what is refused, stored and listed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from nodeloom.runtime.config import Settings
from nodeloom.runtime.errors import SettingsProblem
from nodeloom.server.workflows.user_files import UserFiles

from ..conftest import Client, Serve
from .conftest import FLOW, GRAPH, WIDTH, invoke, pending, put


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


async def test_python_runs_only_where_the_owner_says_so(client: Client, serve: Serve) -> None:
    async with serve() as closed:
        status, refused = await put(closed, file="paint.py")
        assert (status, refused["error"]["type"]) == (403, "user_code_refused")
        assert "--workflow-directory" in refused["error"]["message"]
        assert (await put(closed, "graph", prompt=GRAPH))[0] == 201


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
        ({"version": 0}, 400),
        ({"version": 2**63}, 400),
        ({"inputs": {f"x{number}": 1 for number in range(1025)}}, 400),
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


@pytest.mark.parametrize("body", [{"file": "paint.py"}, {"prompt": GRAPH, "parameters": WIDTH}])
async def test_no_more_than_so_many_problems_are_told(
    client: Client, body: dict[str, object]
) -> None:
    await put(client, **body)
    status, refused = await invoke(client, inputs={f"x{number}": 1 for number in range(1024)})
    assert status == 400
    problems = refused["error"]["extra_info"]["problems"]
    assert len(problems) == 101
    assert problems[-1]["reason"] == "and 924 more problems"


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
