"""A server without executors that runs the files of a folder, and what to ask of it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from ..conftest import Client, Serve

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
OWN = """
from nodeloom import *

class Own(Model):
    def setup_io(self):
        self.add_input("image", "IMAGE")
        self.add_output("image", "IMAGE")

    def load(self, device, check=None):
        pass

    def execute(self, image):
        return {"image": image}

@workflow
def own(copies: int = 0):
    images = Node("EmptyImage")(width=16, height=16)
    for _ in range(copies):
        images = Own()(images)
    return images
"""
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


@pytest.fixture
async def with_models(serve: Serve, flows: Path) -> AsyncIterator[Client]:
    (flows / "own.py").write_text(OWN, "utf-8")
    async with serve(workflow_directory=flows, allow_user_models=True) as client:
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


async def prompt_of(client: Client, **inputs: object) -> dict[str, Any]:
    """What an invocation of the file comes to."""
    await put(client, "made", file="own.py")
    assert (await invoke(client, "made", inputs=inputs))[0] == 200
    return dict((await pending(client))[-1][2])
