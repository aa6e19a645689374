"""Every way in takes every workflow file: JSON in either format, and pictures that carry one."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import FormData
from nodeloom.runtime.config import DemoModels
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from .conftest import Client, Serve

PROMPT = {
    "1": {
        "class_type": "EmptyImage",
        "inputs": {"width": 16, "height": 8, "batch_size": 1, "color": 255},
    },
    "3": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
}
WORKFLOW = {
    "nodes": [
        {"id": 1, "type": "EmptyImage", "widgets_values": [16, 8, 1, 255], "outputs": [{}]},
        {"id": 2, "type": "Reroute", "inputs": [{"name": "", "link": 1}], "outputs": [{}]},
        {"id": 3, "type": "PreviewImage", "inputs": [{"name": "images", "link": 2}]},
        {"id": 4, "type": "PreviewImage", "inputs": [{"name": "images", "link": 3}], "mode": 2},
    ],
    "links": [[1, 1, 0, 2, 0, "*"], [2, 2, 0, 3, 0, "*"], [3, 2, 0, 4, 0, "*"]],
}


def picture(**texts: object) -> bytes:
    info, file = PngInfo(), io.BytesIO()
    for key, value in texts.items():
        info.add_text(key, json.dumps(value))
    Image.new("RGB", (4, 4)).save(file, "png", pnginfo=info)
    return file.getvalue()


def webp(key: str, value: object) -> bytes:
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x010F] = f"{key}:{json.dumps(value)}"
    Image.new("RGB", (4, 4)).save(file, "webp", exif=exif)
    return file.getvalue()


@pytest.fixture
async def client(serve: Serve) -> AsyncIterator[Client]:
    async with serve(demo_models=DemoModels.ON) as client:
        yield client


async def queued(client: Client) -> list[Any]:
    answer = await (await client.get("/queue")).json()
    return [*answer["queue_running"], *answer["queue_pending"]]


def without_titles(prompt: dict[str, Any]) -> dict[str, Any]:
    return {k: {n: v for n, v in node.items() if n != "_meta"} for k, node in prompt.items()}


@pytest.mark.parametrize(
    "file",
    [
        json.dumps(PROMPT).encode(),
        json.dumps(WORKFLOW).encode(),
        json.dumps({"prompt": PROMPT, "client_id": "x"}).encode(),
        picture(prompt=PROMPT, workflow=WORKFLOW),
        picture(workflow=WORKFLOW),
        webp("workflow", WORKFLOW),
        webp("prompt", PROMPT),
    ],
)
async def test_any_file_is_converted_to_one_prompt(client: Client, file: bytes) -> None:
    answer = await client.post("/nodeloom/convert", data=file)
    assert answer.status == 200, await answer.text()
    assert without_titles((await answer.json())["prompt"]) == PROMPT
    form = FormData()
    form.add_field("file", file, filename="w", content_type="application/octet-stream")
    answer = await client.post("/nodeloom/convert", data=form)
    assert without_titles((await answer.json())["prompt"]) == PROMPT
    assert await queued(client) == []


async def test_a_workflow_in_ui_format_is_accepted_with_notes(client: Client) -> None:
    answer = await client.post("/prompt", json={"prompt": WORKFLOW, "client_id": "c"})
    body = await answer.json()
    assert answer.status == 200, body
    assert [(note["kind"], note["node"]) for note in body["notes"]] == [("muted", "4")]
    ((_, prompt_id, prompt, extra, _),) = await queued(client)
    assert prompt_id == body["prompt_id"]
    assert without_titles(prompt) == PROMPT
    assert extra["extra_pnginfo"]["workflow"] == WORKFLOW


async def test_a_picture_is_uploaded_and_run(client: Client) -> None:
    form = FormData()
    form.add_field("file", picture(prompt=PROMPT, workflow=WORKFLOW), filename="a.png")
    form.add_field("client_id", "c")
    form.add_field("extra_data", json.dumps({"nodeloom_title": "mine"}))
    answer = await client.post("/prompt", data=form)
    assert answer.status == 200, await answer.text()
    assert "notes" not in await answer.json()
    ((_, _, prompt, extra, _),) = await queued(client)
    assert prompt == PROMPT
    assert extra["client_id"] == "c"
    assert extra["nodeloom_title"] == "mine"
    assert extra["extra_pnginfo"]["workflow"] == WORKFLOW


async def test_an_unknown_class_is_named_with_id_subgraph_and_pack(client: Client) -> None:
    inner = {
        "id": "sub",
        "name": "Refine",
        "nodes": [{"id": 7, "type": "OddNode", "properties": {"cnr_id": "odd-pack"}}],
    }
    workflow = {"nodes": [{"id": 5, "type": "sub"}], "definitions": {"subgraphs": [inner]}}
    answer = await client.post("/prompt", json={"prompt": workflow})
    assert answer.status == 400
    error = (await answer.json())["error"]
    assert "node 5:7 in subgraph Refine: OddNode (from the pack odd-pack)" in error["details"]
    assert await queued(client) == []


async def test_a_dry_run_plans_and_accepts_nothing(client: Client) -> None:
    answer = await client.post("/prompt?dry_run=1", json={"prompt": WORKFLOW})
    body = await answer.json()
    assert answer.status == 200, body
    assert body["plan"]["ops"] == {"empty_image": 1, "save_image": 1}
    assert body["plan"]["outputs"] == ["3"]
    assert body["plan"]["longest_path"] == 2
    forecast = body["plan"]["forecast"]
    assert forecast["num_before"] == 0
    assert forecast["wait_s"] == 0.0
    assert forecast["run_s"] > 0.0
    assert await queued(client) == []
    await client.post("/prompt", json={"prompt": PROMPT})
    body = await (await client.post("/prompt?dry_run=1", json={"prompt": PROMPT})).json()
    assert body["plan"]["forecast"]["num_before"] == 1
    assert body["plan"]["forecast"]["wait_s"] > 0.0


async def test_a_dry_run_names_models_and_what_is_missing(client: Client) -> None:
    loader = {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "none.safetensors"}}
    decode = {"class_type": "VAEDecode", "inputs": {"vae": ["1", 2], "samples": ["2", 0]}}
    latent = {
        "class_type": "EmptyLatentImage",
        "inputs": {"width": 64, "height": 64, "batch_size": 1},
    }
    save = {"class_type": "PreviewImage", "inputs": {"images": ["3", 0]}}
    prompt = {"1": loader, "2": latent, "3": decode, "4": save}
    answer = await client.post("/prompt?dry_run=1", json={"prompt": prompt})
    assert answer.status == 400
    (problem,) = (await answer.json())["node_errors"]["1"]["errors"]
    assert problem["extra_info"]["received_value"] == "none.safetensors"
    loader["inputs"]["ckpt_name"] = "nodeloom-shapes.safetensors"
    body = await (await client.post("/prompt?dry_run=1", json={"prompt": prompt})).json()
    (model,) = body["plan"]["forecast"]["models"]
    assert model["file"] == "nodeloom-shapes.safetensors"
    assert model["num_warm"] == 0
    assert model["num_bytes"] > 10_000_000


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "neither a workflow"),
        (b"\x89PNG\r\n\x1a\n", "cut off"),
        (picture(parameters="a cat"), "carries no workflow"),
        (json.dumps({"nodes": [3]}).encode(), "nodes[0]"),
    ],
)
async def test_what_is_no_workflow_is_refused_with_the_reason(
    client: Client, data: bytes, said: str
) -> None:
    answer = await client.post("/nodeloom/convert", data=data)
    assert answer.status == 400
    assert said in (await answer.json())["error"]["message"]


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (2**70, "beyond 64 bits"),
        ("\ud800", "surrogate"),
        (json.loads("[" * 200 + "]" * 200), "nested deeper"),
    ],
)
@pytest.mark.parametrize("door", ["/prompt", "/nodeloom/convert"])
async def test_what_could_not_be_stored_is_refused_in_files_too(
    client: Client, door: str, odd: object, said: str
) -> None:
    form = FormData()
    file = picture(prompt=PROMPT, workflow=WORKFLOW | {"extra": odd})
    form.add_field("file", file, filename="a.png")
    answer = await client.post(door, data=form)
    assert answer.status == 400
    assert said in json.dumps(await answer.json())
    assert await queued(client) == []


async def test_files_of_too_many_values_are_refused_before_they_are_parsed(client: Client) -> None:
    many = io.BytesIO(b"[" + b"1," * 1_000_001 + b"1]")
    answer = await client.post("/nodeloom/convert", data=many)
    assert answer.status == 400
    assert "more than 1000000 values" in json.dumps(await answer.json())


async def test_a_form_without_a_file_is_refused(client: Client) -> None:
    form = FormData()
    form.add_field("other", b"x", filename="x")
    answer = await client.post("/prompt", data=form)
    assert answer.status == 400
    assert "no file" in (await answer.json())["error"]["message"]


async def test_foreign_pages_may_not_convert(client: Client) -> None:
    answer = await client.post(
        "/nodeloom/convert", data=b"{}", headers={"Origin": "http://elsewhere.example"}
    )
    assert answer.status == 403
