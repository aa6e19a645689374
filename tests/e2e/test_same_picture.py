"""Strict mode: the same bits however the work is spread, shared, interrupted and taken up again."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import Client, Json, ServerProcess, connect
from kit.prompts import txt2img
from PIL import Image

SEEDS = (101, 102)
STEPS = 6


def prompt_of(seed: int, **more: object) -> Json:
    sampler = "euler_ancestral" if seed % 2 else "dpmpp_2m"
    return txt2img(seed=seed, steps=STEPS, sampler=sampler, **more)  # type: ignore[arg-type]


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as picture:
        return np.asarray(picture)


async def picture_of(client: Client, seed: int) -> np.ndarray:
    return pixels(await client.picture(await client.run(prompt_of(seed)), "9"))


@pytest.fixture(scope="module")
def alone(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, np.ndarray]:
    """The pictures of one strict executor, one request at a time."""
    base = make_base(tmp_path_factory.mktemp("alone"), checkpoint)

    async def draw(server: ServerProcess) -> dict[int, np.ndarray]:
        async with connect(server.url) as client:
            return {seed: await picture_of(client, seed) for seed in SEEDS}

    with ServerProcess(base, executors=1, flags=("--strict",)) as server:
        return asyncio.run(draw(server))


@pytest.fixture(scope="module")
def strict_pair(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    base = make_base(tmp_path_factory.mktemp("pair"), checkpoint)
    with ServerProcess(base, executors=2, flags=("--strict",)) as server:
        yield server


async def test_two_executors_draw_the_same_bits(
    strict_pair: ServerProcess, alone: dict[int, np.ndarray]
) -> None:
    async with connect(strict_pair.url) as client:
        for seed in SEEDS:
            assert np.array_equal(await picture_of(client, seed), alone[seed])


async def test_three_executors_draw_the_same_bits(
    checkpoint: Path, tmp_path: Path, alone: dict[int, np.ndarray]
) -> None:
    with ServerProcess(make_base(tmp_path, checkpoint), executors=3, flags=("--strict",)) as server:
        async with connect(server.url) as client:
            for seed in SEEDS:
                assert np.array_equal(await picture_of(client, seed), alone[seed])


async def draw_beside_others(server: ServerProcess, seed: int) -> np.ndarray:
    """Run `seed` while seven other requests of other clients are in the house."""

    async def other(index: int) -> None:
        async with connect(server.url) as client:
            await client.run(prompt_of(900 + index, text=f"thing {index}"))

    async with asyncio.TaskGroup() as group:
        for index in range(7):
            group.create_task(other(index))
        async with connect(server.url) as client:
            drawn = await picture_of(client, seed)
    return drawn


async def test_beside_seven_others_strict_draws_the_same_bits(
    strict_pair: ServerProcess, alone: dict[int, np.ndarray]
) -> None:
    assert np.array_equal(await draw_beside_others(strict_pair, SEEDS[0]), alone[SEEDS[0]])


async def test_beside_seven_others_default_mode_is_within_one_of_255(
    shared_server: ServerProcess, alone: dict[int, np.ndarray]
) -> None:
    drawn = await draw_beside_others(shared_server, SEEDS[1])
    difference = np.abs(drawn.astype(int) - alone[SEEDS[1]].astype(int))
    assert difference.max() <= 1


async def test_an_executor_killed_in_mid_denoise_costs_no_bit(
    strict_pair: ServerProcess, alone: dict[int, np.ndarray]
) -> None:
    before = {executor["pid"] for executor in strict_pair.executors()}
    async with connect(strict_pair.url) as client:
        accepted = await client.submit(prompt_of(SEEDS[0]))
        await client.until(lambda m: isinstance(m, dict) and m["type"] == "progress")
        busy = [e for e in strict_pair.executors() if e["running"]]
        victim = (busy or strict_pair.executors())[0]
        strict_pair.kill_executor(victim)
        await client.end_of(accepted["prompt_id"])
        entry = await client.history(accepted["prompt_id"])
        assert np.array_equal(pixels(await client.picture(entry, "9")), alone[SEEDS[0]])
    assert entry["status"]["completed"]
    strict_pair.wait_for(lambda: len(strict_pair.executors()) == 2, "the executor's return")
    assert {executor["pid"] for executor in strict_pair.executors()} != before


async def test_a_server_killed_in_mid_run_finishes_the_request_after_its_restart(
    checkpoint: Path, tmp_path: Path, alone: dict[int, np.ndarray]
) -> None:
    base = make_base(tmp_path, checkpoint)
    server = ServerProcess(base, executors=1, flags=("--strict",))
    server.start()
    async with connect(server.url) as client:
        accepted = await client.submit(prompt_of(SEEDS[1]))
        await client.until(lambda m: isinstance(m, dict) and m["type"] == "progress")
        server.kill()
    prompt_id = accepted["prompt_id"]
    with server:
        async with connect(server.url, client.client_id) as again:
            if prompt_id not in server.get(f"/history/{prompt_id}"):
                await again.end_of(prompt_id)
            entry = await again.history(prompt_id)
            assert entry["status"]["completed"]
            assert np.array_equal(pixels(await again.picture(entry, "9")), alone[SEEDS[1]])
    names = [path.name for path in (base / "output").rglob("*") if path.is_file()]
    assert names == ["test_00001_.png"]
