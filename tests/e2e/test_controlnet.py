"""ControlNets in a real cluster: any number of them on any number of executors, the same bits."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import RUN_LIMIT_S, Client, Json, ServerProcess, connect
from kit.prompts import txt2img
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet
from PIL import Image

NUM_CONTROLS = 3
SIZE = 64
HINT = "hint.png"
FLAGS = ("--strict",)


def steered(num_controls: int, *, steps: int = 4, prefix: str = "test", size: int = SIZE) -> Json:
    """A prompt with a chain of ControlNets on both of its conditionings."""
    prompt = txt2img(seed=3, steps=steps, prefix=prefix, size=size)
    prompt["20"] = {"class_type": "LoadImage", "inputs": {"image": HINT}}
    sides = (["6", 0], ["7", 0])
    for index in range(num_controls):
        loader, apply = f"3{index}", f"4{index}"
        prompt[loader] = {
            "class_type": "ControlNetLoader",
            "inputs": {"control_net_name": f"control{index}.safetensors"},
        }
        prompt[apply] = {
            "class_type": "ControlNetApplyAdvanced",
            "inputs": {
                "positive": sides[0],
                "negative": sides[1],
                "control_net": [loader, 0],
                "image": ["20", 0],
                "strength": 0.9,
                "start_percent": 0.0,
                "end_percent": 1.0 if index == 0 else 0.6,
            },
        }
        sides = ([apply, 0], [apply, 1])
    prompt["3"]["inputs"] |= {"positive": sides[0], "negative": sides[1]}
    return prompt


def make_steered_base(base: Path, checkpoint: Path) -> Path:
    make_base(base, checkpoint)
    for index in range(NUM_CONTROLS):
        write_tiny_controlnet(
            base / "models" / "controlnet" / f"control{index}.safetensors", seed=index
        )
    pixels = np.random.default_rng(0).integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(base / "input" / HINT)
    return base


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as picture:
        return np.asarray(picture)


async def draw(client: Client, prompt: Json) -> np.ndarray:
    entry = await client.run(prompt)
    assert entry["status"]["completed"], entry["status"]
    return pixels(await client.picture(entry, "9"))


@pytest.fixture(scope="module")
def alone(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """What one executor draws, by the number of ControlNets."""

    async def draw_all(url: str) -> list[np.ndarray]:
        async with connect(url) as client:
            return [await draw(client, steered(count)) for count in range(NUM_CONTROLS + 1)]

    base = make_steered_base(tmp_path_factory.mktemp("alone"), checkpoint)
    with ServerProcess(base, executors=1, flags=FLAGS) as server:
        return asyncio.run(draw_all(server.url))


@pytest.fixture(scope="module", params=[2, 3])
def cluster(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    base = make_steered_base(tmp_path_factory.mktemp("cluster"), checkpoint)
    with ServerProcess(base, executors=request.param, flags=FLAGS) as server:
        yield server


def test_every_controlnet_changes_the_picture(alone: list[np.ndarray]) -> None:
    for fewer, more in pairwise(alone):
        assert not np.array_equal(fewer, more)


@pytest.mark.parametrize("num_controls", range(NUM_CONTROLS + 1))
async def test_more_executors_draw_the_same_bits(
    num_controls: int, cluster: ServerProcess, alone: list[np.ndarray]
) -> None:
    async with connect(cluster.url) as client:
        assert np.array_equal(await draw(client, steered(num_controls)), alone[num_controls])


async def test_requests_at_once_draw_the_same_bits(
    cluster: ServerProcess, alone: list[np.ndarray]
) -> None:
    async def draw_one(index: int) -> None:
        count = index % (NUM_CONTROLS + 1)
        async with connect(cluster.url) as client:
            picture = await draw(client, steered(count, prefix=f"at-once-{index}"))
        assert np.array_equal(picture, alone[count])

    async with asyncio.TaskGroup() as group:
        for index in range(6):
            group.create_task(draw_one(index))


def at_a_controlnet(server: ServerProcess) -> Json:
    """The executor that runs a ControlNet, looked for until there is one."""
    deadline_s = time.monotonic() + RUN_LIMIT_S
    while time.monotonic() < deadline_s:
        for executor in server.executors():
            if executor["running"] == "controlnet":
                return executor
    raise AssertionError("no executor ran a ControlNet")


async def test_the_death_of_the_controlnets_executor_costs_no_bit(
    cluster: ServerProcess,
) -> None:
    drawn = []
    async with connect(cluster.url) as client:
        for is_killed in (False, True):
            accepted = await client.submit(steered(1, steps=100, prefix=f"killed-{is_killed}"))
            await client.until(lambda m: isinstance(m, dict) and m["type"] == "progress")
            if is_killed:
                cluster.kill_executor(at_a_controlnet(cluster))
            await client.end_of(accepted["prompt_id"])
            entry = await client.history(accepted["prompt_id"])
            assert entry["status"]["completed"]
            drawn.append(pixels(await client.picture(entry, "9")))
    assert np.array_equal(*drawn)
    cluster.wait_for(lambda: len(cluster.executors()) == cluster.num_executors, "its return")


async def test_the_default_mode_is_within_one_of_255(
    checkpoint: Path, tmp_path: Path, alone: list[np.ndarray]
) -> None:
    with ServerProcess(make_steered_base(tmp_path, checkpoint), executors=2) as server:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connect(server.url)) for _ in range(4)]
            drawn = await asyncio.gather(
                *(draw(client, steered(i, prefix=f"d{i}")) for i, client in enumerate(clients))
            )
    for picture, expected in zip(drawn, alone, strict=True):
        assert np.abs(picture.astype(int) - expected.astype(int)).max() <= 1
