"""Registered workflows on a real server: the examples, versions, graphs, what they share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from kit.cluster import ServerProcess, connect
from kit.prompts import TINY, txt2img
from kit.workflow_server import (
    EXAMPLES,
    HINT,
    flags,
    invoke,
    invoked,
    make_workflow_base,
    pixels,
    register,
)

# name -> its file, values, outputs with the size of their pictures
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, tuple[int, int]]]] = {
    "text_to_image": (
        "text_to_image.py",
        {"prompt": "a red star", "steps": 2, "size": 64},
        {"image": (64, 64)},
    ),
    "sd15_controlnet_lora": (
        "controlnet_lora.py",
        {"prompt": "a red star", "ref_image": HINT},
        {"output_img": (128, 128)},
    ),
    "ensemble": (
        "ensemble.py",
        {"prompt": "a red star", "steps": 3, "coarse_steps": 2, "size": 64},
        {"image": (64, 64)},
    ),
    "redraw": (
        "image_chain.py",
        {"image": HINT, "prompt": "a red star", "steps": 2},
        {"image": (64, 64)},
    ),
    "image_chain": (
        "image_chain.py",
        {"image": HINT, "prompt": "a red star", "steps": 2, "size": 72},
        {"first": (64, 64), "second": (72, 72)},
    ),
    "sharpen": ("custom_model.py", {"image": HINT, "amount": 1.0}, {"image": (64, 64)}),
}


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    base = make_workflow_base(tmp_path_factory.mktemp("workflows"), checkpoint)
    with ServerProcess(base, executors=2, flags=flags(base, "--strict")) as server:
        for name, (file, _, _) in RUNS.items():
            register(server, name, file=file, workflow=name)
        yield server


@pytest.mark.parametrize("name", RUNS)
def test_an_example_runs_as_it_is_invoked(name: str, server: ServerProcess) -> None:
    _, values, outputs = RUNS[name]
    told = invoke(server, name, **values)
    assert (told["workflow"], told["version"]) == (name, 1)
    for output, size in outputs.items():
        (file,) = told["outputs"][output]
        assert file["filename"].startswith(f"{output}_")
        picture = pixels(server, told, output)
        assert picture.shape == (*size, 3)
        assert picture.std() > 0
    entry = server.get(f"/history/{told['prompt_id']}")[told["prompt_id"]]
    assert entry["status"]["completed"]
    assert entry["prompt"][3]["nodeloom"]["workflow"] == name


def test_every_example_is_run_here() -> None:
    assert {file for file, _, _ in RUNS.values()} == {p.name for p in EXAMPLES.glob("[!_]*.py")}


def test_the_listing_says_what_workflows_take_and_give(server: ServerProcess) -> None:
    listing = {item["name"]: item for item in server.get("/nodeloom/workflows")}
    assert listing.keys() >= RUNS.keys()
    shown = listing["sharpen"]
    assert shown["models"] == ["Sharpen"]
    assert (shown["outputs"], shown["structural"]) == (["image"], [])
    assert shown["inputs"] == [
        {"name": "image", "type": "IMAGE", "is_required": True},
        {"name": "amount", "type": "FLOAT", "is_required": False, "default": 0.5},
    ]
    assert listing["text_to_image"]["structural"] == ["steps"]


def test_python_and_comfyui_draw_the_same_bits(server: ServerProcess) -> None:
    graph = json.loads((EXAMPLES / "txt2img.json").read_text("utf-8"))
    register(
        server,
        "graph",
        prompt=graph,
        parameters={"prompt": {"node": "6", "input": "text"}},
        outputs={"image": "9"},
    )
    negative = graph["7"]["inputs"]["text"]
    of_python = invoke(server, "text_to_image", prompt="a red star", negative_prompt=negative)
    of_graph = invoke(server, "graph", prompt="a red star")
    assert np.array_equal(pixels(server, of_python, "image"), pixels(server, of_graph, "image"))
    other = invoke(server, "graph", prompt="a blue heart")
    assert not np.array_equal(pixels(server, other, "image"), pixels(server, of_graph, "image"))


def test_a_graph_has_typed_parameters(server: ServerProcess) -> None:
    shown = register(
        server,
        "typed",
        prompt=txt2img(steps=1),
        parameters={
            "steps": {"node": "3", "input": "steps"},
            "sampler": {"node": "3", "input": "sampler_name"},
            "checkpoint": {"node": "4", "input": "ckpt_name"},
        },
    )
    steps, sampler, checkpoint = shown["inputs"]
    assert (steps["type"], steps["default"], steps["min"]) == ("INT", 1, 1)
    assert "euler" in sampler["choices"]
    assert (checkpoint["type"], checkpoint["default"], checkpoint["files"]) == (
        "COMBO",
        TINY,
        "checkpoints",
    )
    assert shown["outputs"] == ["9"]
    status, refused = server.post(
        "/nodeloom/workflows/typed/invoke",
        {"inputs": {"steps": 0, "sampler": "magic", "checkpoint": "no.safetensors"}},
    )
    assert status == 400
    problems = refused["error"]["extra_info"]["problems"]
    reasons = {problem["input"]: problem["reason"] for problem in problems}
    assert reasons.keys() == {"checkpoint", "steps", "sampler"}
    assert "smaller than min" in reasons["steps"]
    told = invoke(server, "typed", steps=2)
    assert told["outputs"]["9"][0]["type"] == "output"


def test_a_job_is_like_a_prompt_and_is_found_by_its_outputs(server: ServerProcess) -> None:
    accepted = invoked(
        server, "text_to_image", inputs={"prompt": "slow", "steps": 40}, prompt_id="job"
    )
    assert accepted["status"] == "waiting"
    assert accepted["nodes"] == {"image": "output-image"}
    assert (
        server.post(
            "/nodeloom/workflows/text_to_image/invoke",
            {"inputs": {"prompt": ""}, "prompt_id": "job"},
        )[0]
        == 409
    )
    status, told = server.ask("GET", "/nodeloom/requests/job")
    assert (status, told["status"] in ("waiting", "running")) == (200, True)
    server.wait_for(
        lambda: server.get("/nodeloom/requests/job")["status"] == "success", "the job's end"
    )
    told = server.get("/nodeloom/requests/job")
    assert pixels(server, told, "image").std() > 0
    assert server.ask("GET", "/nodeloom/requests/nobody")[0] == 404


def test_whoever_waits_too_long_is_told_and_the_request_goes_on(server: ServerProcess) -> None:
    status, told = server.post(
        "/nodeloom/workflows/text_to_image/invoke",
        {"inputs": {"prompt": "patience", "steps": 30}, "wait": True, "timeout_s": 0.01},
    )
    assert status == 202
    assert "outputs" not in told
    where = f"/nodeloom/requests/{told['prompt_id']}"
    server.wait_for(lambda: server.get(where)["status"] == "success", "its end")


async def test_a_client_that_leaves_while_it_waits_changes_nothing(server: ServerProcess) -> None:
    body = {"inputs": {"prompt": "left", "steps": 30}, "wait": True, "prompt_id": "left"}
    async with aiohttp.ClientSession() as session:
        with pytest.raises(TimeoutError):
            await session.post(
                f"{server.url}/nodeloom/workflows/text_to_image/invoke",
                json=body,
                timeout=aiohttp.ClientTimeout(total=0.3),
            )
    where = "/nodeloom/requests/left"
    server.wait_for(lambda: server.ask("GET", where)[1]["status"] == "success", "its end")


async def test_an_invocation_is_told_like_a_prompt(server: ServerProcess) -> None:
    path = f"{server.url}/nodeloom/workflows/sharpen/invoke"
    async with connect(server.url) as client:
        body = {"inputs": {"image": HINT, "amount": 0.3}, "client_id": client.client_id}
        async with client.session.post(path, json=body) as answer:
            accepted = await answer.json()
        await client.end_of(accepted["prompt_id"])
    told = [(m["type"], m["data"].get("node")) for m in client.texts(accepted["prompt_id"])]
    assert told[0][0] == "execution_start"
    assert ("executing", "Sharpen-1") in told
    assert ("executed", accepted["nodes"]["image"]) in told


def test_a_request_keeps_the_version_it_was_accepted_with(server: ServerProcess) -> None:
    flow = server.base / "flows" / "growing.py"
    text = (
        (EXAMPLES / "text_to_image.py")
        .read_text("utf-8")
        .replace("def text_to_image", "def growing")
    )
    flow.write_text(text, "utf-8")
    assert register(server, "growing", file="growing.py")["version"] == 1
    values = {"prompt": "a green cross", "steps": 2, "size": 64}
    first = invoke(server, "growing", **values)
    job = invoked(server, "growing", inputs=values | {"steps": 30}, prompt_id="of-version-1")
    flow.write_text(text.replace("cfg: float = 5.0", "cfg: float = 1.5"), "utf-8")
    assert register(server, "growing", file="growing.py")["version"] == 2
    second = invoke(server, "growing", **values)
    assert second["version"] == 2
    assert not np.array_equal(pixels(server, first, "image"), pixels(server, second, "image"))
    told = invoked(server, "growing", inputs=values, version=1, wait=True)
    assert np.array_equal(pixels(server, first, "image"), pixels(server, told, "image"))
    other_steps = invoked(server, "growing", inputs=values | {"steps": 3}, version=1, wait=True)
    assert other_steps["status"] == "success"  # traced anew from the stored text
    flow.write_text(text, "utf-8")
    again = register(server, "growing", file="growing.py")
    assert (again["version"], again["versions"]) == (1, [1, 2])
    where = f"/nodeloom/requests/{job['prompt_id']}"
    server.wait_for(lambda: server.get(where)["status"] == "success", "the old version's end")
    entry = server.get("/history/of-version-1")["of-version-1"]
    cfgs = {n["inputs"].get("cfg") for n in entry["prompt"][2].values()} - {None}
    assert cfgs == {5.0}


def test_values_that_make_no_sense_are_refused_all_at_once(server: ServerProcess) -> None:
    status, refused = server.post(
        "/nodeloom/workflows/text_to_image/invoke",
        {"inputs": {"steps": "many", "seed": 1.5, "color": 3}},
    )
    assert (status, refused["error"]["type"]) == (400, "invocation_rejected")
    problems = refused["error"]["extra_info"]["problems"]
    assert {problem["input"] for problem in problems} == {"color", "prompt", "seed", "steps"}
    status, refused = server.post(
        "/nodeloom/workflows/text_to_image/invoke",
        {"inputs": {"prompt": "x", "checkpoint": "none.safetensors", "steps": 2}},
    )
    (problem, *_) = refused["error"]["extra_info"]["problems"]
    assert (status, problem["input"]) == (400, "checkpoint")
    assert problem["place"]["file"] == "text_to_image.py"


def test_a_deleted_workflow_is_gone_and_its_numbers_stay_used(server: ServerProcess) -> None:
    register(server, "gone", file="text_to_image.py")
    assert server.ask("DELETE", "/nodeloom/workflows/gone")[0] == 204
    assert server.ask("DELETE", "/nodeloom/workflows/gone")[0] == 404
    assert server.ask("GET", "/nodeloom/workflows/gone")[0] == 404
    assert server.post("/nodeloom/workflows/gone/invoke", {})[0] == 404
    assert register(server, "gone", file="text_to_image.py")["version"] == 2


def test_registrations_and_accepted_invocations_survive_kill_9(
    checkpoint: Path, tmp_path: Path
) -> None:
    base = make_workflow_base(tmp_path / "base", checkpoint)
    server = ServerProcess(base, executors=1, flags=flags(base, "--threads", "1"))
    values = {"prompt": "a red star", "steps": 20, "size": 64}
    with server:
        register(server, "text_to_image", file="text_to_image.py")
        register(server, "sharpen", file="custom_model.py")
        invoked(server, "text_to_image", inputs=values, prompt_id="first")
        invoked(server, "sharpen", inputs={"image": HINT}, prompt_id="second")
        server.kill()
    (base / "flows" / "custom_model.py").write_text("raise RuntimeError('changed')", "utf-8")
    (base / "flows" / "text_to_image.py").unlink()
    with server:
        names = [item["name"] for item in server.get("/nodeloom/workflows")]
        assert names == ["sharpen", "text_to_image"]
        for prompt_id in ("first", "second"):
            where = f"/nodeloom/requests/{prompt_id}"
            server.wait_for(
                lambda where=where: server.get(where)["status"] == "success",  # type: ignore[misc]  # its default
                "the end of what was accepted",
            )
        assert pixels(server, server.get("/nodeloom/requests/second"), "image").std() > 0
        assert invoke(server, "text_to_image", **values | {"steps": 3})["version"] == 1
