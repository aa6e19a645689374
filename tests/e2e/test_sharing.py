"""Weights of a shared model are loaded once per executor, however many requests use them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kit.base_directory import make_base
from kit.cluster import ServerProcess, connect
from kit.prompts import txt2img


async def test_weights_are_loaded_once_per_executor(checkpoint: Path, tmp_path: Path) -> None:
    async def run(server: ServerProcess, seed: int) -> None:
        async with connect(server.url) as client:
            await client.run(txt2img(seed=seed, steps=2, text=f"text {seed}"))

    with ServerProcess(make_base(tmp_path, checkpoint), executors=2) as server:
        async with asyncio.TaskGroup() as group:
            for seed in range(6):
                group.create_task(run(server, seed))
        async with connect(server.url) as client:
            await client.run(txt2img(seed=7, steps=2))
        for executor in server.executors():
            assert executor["num_loads"] == len(executor["resident"]) <= 3
            assert len(set(executor["resident"])) == len(executor["resident"])
            assert executor["held_bytes"] >= 0
        assert sum(executor["num_loads"] for executor in server.executors()) >= 3


async def test_after_all_requests_no_tensor_is_left(shared_server: ServerProcess) -> None:
    async with connect(shared_server.url) as client:
        await client.run(txt2img(seed=21, steps=2))
    shared_server.wait_for(
        lambda: all(executor["held_bytes"] == 0 for executor in shared_server.executors()),
        "the release of all tensors",
    )
