"""A LoRA and a ControlNet in one prompt: the same bits through kills of executors and server.

In strict mode bit for bit; in the default mode, batched with others, within 1 of 255.
"""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import Client, Json, ServerProcess, connect
from kit.loras import write_lora
from kit.prompts import txt2img
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet
from PIL import Image

STRICT = ("--strict",)
SEED = 11
STEPS = 8


def prompt_of(seed: int, *, strength: float = 0.7) -> Json:
    """Text to image with a LoRA on both models and a ControlNet on both conditionings."""
    prompt = txt2img(seed=seed, steps=STEPS, sampler="euler_ancestral")
    prompt["10"] = {
        "class_type": "LoraLoader",
        "inputs": {
            "model": ["4", 0],
            "clip": ["4", 1],
            "lora_name": "style.safetensors",
            "strength_model": strength,
            "strength_clip": strength,
        },
    }
    prompt["20"] = {"class_type": "LoadImage", "inputs": {"image": "hint.png"}}
    prompt["21"] = {
        "class_type": "ControlNetLoader",
        "inputs": {"control_net_name": "edges.safetensors"},
    }
    prompt["22"] = {
        "class_type": "ControlNetApplyAdvanced",
        "inputs": {
            "positive": ["6", 0],
            "negative": ["7", 0],
            "control_net": ["21", 0],
            "image": ["20", 0],
            "strength": 0.9,
            "start_percent": 0.0,
            "end_percent": 1.0,
        },
    }
    prompt["3"]["inputs"] |= {"model": ["10", 0], "positive": ["22", 0], "negative": ["22", 1]}
    for encoder in ("6", "7"):
        prompt[encoder]["inputs"]["clip"] = ["10", 1]
    return prompt


def make_models(folder: Path, checkpoint: Path) -> Path:
    base = make_base(folder, checkpoint)
    write_lora(base / "models" / "loras" / "style.safetensors", "locon", seed=4)
    write_tiny_controlnet(base / "models" / "controlnet" / "edges.safetensors", seed=5)
    hint = np.random.default_rng(0).integers(0, 256, size=(64, 64, 3), dtype=np.uint8)
    Image.fromarray(hint).save(base / "input" / "hint.png")
    return base


async def picture_of(client: Client, entry: Json) -> np.ndarray:
    assert entry["status"]["completed"], entry["status"]
    with Image.open(io.BytesIO(await client.picture(entry, "9"))) as picture:
        return np.asarray(picture)


async def begun(client: Client, seed: int) -> str:
    """A request that is being sampled now."""
    accepted = await client.submit(prompt_of(seed))
    await client.until(lambda m: isinstance(m, dict) and m["type"] == "progress")
    return str(accepted["prompt_id"])


@pytest.fixture(scope="module")
def alone(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """From one strict executor that has nothing else to do; LoRA and ControlNet show in it."""
    base = make_models(tmp_path_factory.mktemp("alone"), checkpoint)
    unsteered = prompt_of(SEED)
    unsteered["3"]["inputs"] |= {"positive": ["6", 0], "negative": ["7", 0]}

    async def draw(server: ServerProcess) -> list[np.ndarray]:
        async with connect(server.url) as client:
            prompts = [prompt_of(SEED), prompt_of(SEED, strength=0.0), unsteered]
            return [await picture_of(client, await client.run(prompt)) for prompt in prompts]

    with ServerProcess(base, executors=1, flags=STRICT) as server:
        drawn, unpatched, unsteered_picture = asyncio.run(draw(server))
    assert not np.array_equal(drawn, unpatched)
    assert not np.array_equal(drawn, unsteered_picture)
    return drawn


async def test_killed_executors_and_a_killed_server_cost_no_bit(
    checkpoint: Path, tmp_path: Path, alone: np.ndarray
) -> None:
    base = make_models(tmp_path, checkpoint)
    server = ServerProcess(base, executors=2, flags=STRICT)
    server.start()
    async with connect(server.url) as client:
        prompt_id = await begun(client, SEED)
        busy = [executor for executor in server.executors() if executor["running"]]
        server.kill_executor((busy or server.executors())[0])
        await client.end_of(prompt_id)
        assert np.array_equal(await picture_of(client, await client.history(prompt_id)), alone), (
            "an executor was killed"
        )
        prompt_id = await begun(client, SEED)
        server.kill()
    with server:
        async with connect(server.url, client.client_id) as again:
            if prompt_id not in server.get(f"/history/{prompt_id}"):
                await again.end_of(prompt_id)
            drawn = await picture_of(again, await again.history(prompt_id))
    assert np.array_equal(drawn, alone), "the server was killed"


async def test_in_default_mode_beside_others_the_picture_is_within_one_of_255(
    checkpoint: Path, tmp_path: Path, alone: np.ndarray
) -> None:
    base = make_models(tmp_path, checkpoint)

    async def draw(server: ServerProcess, seed: int, strength: float) -> np.ndarray:
        async with connect(server.url) as client:
            entry = await client.run(prompt_of(seed, strength=strength))
            return await picture_of(client, entry)

    with ServerProcess(base, executors=1) as server:
        async with asyncio.TaskGroup() as group:
            wanted = group.create_task(draw(server, SEED, 0.7))
            for seed in range(100, 104):
                group.create_task(draw(server, seed, 0.7 if seed % 2 else 0.2))
    difference = np.abs(wanted.result().astype(int) - alone.astype(int))
    assert difference.max() <= 1
