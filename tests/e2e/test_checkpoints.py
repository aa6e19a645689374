"""kill -9 in mid-denoise: the chain goes on from its last step with the same bits; files go."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import Client, Json, ServerProcess, connect
from kit.loras import write_lora
from kit.prompts import txt2img
from nodeloom.runtime.config import CHECKPOINTS_PREFIX, SHARED_MEMORY
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet
from PIL import Image

STEPS = 24
SIZE = 256  # latents of 16 KB: they don't travel in their refs
KILL_AT = 8
LORA, CONTROL, HINT = "lora.safetensors", "control.safetensors", "hint.png"
FLAGS = ("--strict", "--log-level", "DEBUG")


def plain() -> Json:
    return txt2img(seed=7, steps=STEPS, size=SIZE, sampler="euler_ancestral")


def with_lora() -> Json:
    prompt = plain()
    inputs = {"model": ["4", 0], "clip": ["4", 1], "lora_name": LORA}
    inputs |= {"strength_model": 0.8, "strength_clip": 0.8}
    prompt["10"] = {"class_type": "LoraLoader", "inputs": inputs}
    prompt["3"]["inputs"]["model"] = ["10", 0]
    return prompt


def with_controlnet() -> Json:
    prompt = plain()
    prompt["20"] = {"class_type": "LoadImage", "inputs": {"image": HINT}}
    inputs = {"control_net_name": CONTROL}
    prompt["30"] = {"class_type": "ControlNetLoader", "inputs": inputs}
    inputs = {"positive": ["6", 0], "negative": ["7", 0], "control_net": ["30", 0]}
    inputs |= {"image": ["20", 0], "strength": 0.9, "start_percent": 0.0, "end_percent": 0.7}
    prompt["40"] = {"class_type": "ControlNetApplyAdvanced", "inputs": inputs}
    prompt["3"]["inputs"] |= {"positive": ["40", 0], "negative": ["40", 1]}
    return prompt


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    base = make_base(tmp_path_factory.mktemp("checkpoints"), checkpoint)
    write_lora(base / "models" / "loras" / LORA, "locon", seed=1)
    write_tiny_controlnet(base / "models" / "controlnet" / CONTROL, seed=1)
    noise = np.random.default_rng(0).integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)
    Image.fromarray(noise).save(base / "input" / HINT)
    with ServerProcess(base, executors=2, flags=FLAGS) as server:
        yield server


def folder_of(server: ServerProcess) -> Path:
    """The checkpoint folder of this server's run, as it told its executors."""
    (pid, *_) = [executor["pid"] for executor in server.executors()]
    told = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    (settings,) = [json.loads(part) for part in told if part.startswith("{")]
    return Path(settings["checkpoint_directory"])


def checkpoints_of(server: ServerProcess) -> list[Path]:
    """Files with tensors: all but the marks of what executors began."""
    return [path for path in folder_of(server).iterdir() if path.suffix != ".begun"]


def one_that_denoises(server: ServerProcess) -> Json:
    found: list[Json] = []

    def look() -> bool:
        found[:] = [e for e in server.executors() if e["running"] == "denoise"]
        return bool(found)

    server.wait_for(look, "a step")
    return found[0]


def num_evaluations(server: ServerProcess) -> int:
    """Batches of denoising that executors have completed: one call each, in strict mode."""
    lines = [line for line in list(server.log) if '"batch_done"' in line]
    return sum(json.loads(line)["op"] == "denoise" for line in lines)


def is_sent_work(server: ServerProcess, executor: Json) -> bool:
    running = {e["pid"]: e["running"] for e in server.executors()}
    return running.get(executor["pid"]) is not None


async def picture(client: Client, prompt_id: str) -> np.ndarray:
    entry = await client.history(prompt_id)
    assert entry["status"]["completed"], entry["status"]
    with Image.open(io.BytesIO(await client.picture(entry, "9"))) as image:
        return np.asarray(image)


def is_step(message: Json | bytes, step: int) -> bool:
    if isinstance(message, bytes) or message["type"] != "progress":
        return False
    return message["data"]["value"] >= step and message["data"]["max"] == STEPS


@pytest.mark.parametrize("make_prompt", [plain, with_lora, with_controlnet])
async def test_a_killed_executor_costs_the_step_that_ran_and_no_bit(
    server: ServerProcess, make_prompt: type
) -> None:
    async with connect(server.url) as client:
        undisturbed = await client.submit(make_prompt())
        await client.end_of(undisturbed["prompt_id"])
        before = num_evaluations(server)
        accepted = await client.submit(make_prompt())
        prompt_id = accepted["prompt_id"]
        await client.until(lambda message: is_step(message, KILL_AT))
        assert checkpoints_of(server)
        pids = {executor["pid"] for executor in server.executors()}
        server.kill_executor(one_that_denoises(server))
        await client.end_of(prompt_id)
        same = await picture(client, prompt_id) == await picture(client, undisturbed["prompt_id"])
    assert same.all()
    assert STEPS <= num_evaluations(server) - before <= STEPS + 2
    assert checkpoints_of(server) == []
    server.wait_for(lambda: len(server.executors()) == 2, "the executor's return")
    assert {executor["pid"] for executor in server.executors()} != pids


async def test_executors_that_die_together_fail_no_request(server: ServerProcess) -> None:
    """The second one is stopped before the first dies: it is sent the step, but begins nothing."""
    async with connect(server.url) as client:
        accepted = await client.submit(plain())
        await client.until(lambda message: is_step(message, KILL_AT))
        busy = one_that_denoises(server)
        (other,) = (e for e in server.executors() if e["pid"] != busy["pid"])
        os.kill(other["pid"], signal.SIGSTOP)
        server.kill_executor(busy)
        server.wait_for(lambda: is_sent_work(server, other), "the step's second executor")
        server.kill_executor(other)
        await client.end_of(accepted["prompt_id"])
        await picture(client, accepted["prompt_id"])
    assert not any("poisoned" in line for line in server.log)


async def test_a_clean_stop_leaves_no_folder_and_a_killed_servers_goes_at_the_next_start(
    checkpoint: Path, tmp_path: Path
) -> None:
    base = make_base(tmp_path, checkpoint)
    server = ServerProcess(base, executors=1, flags=FLAGS)
    server.start()
    left = folder_of(server)
    assert left.parent == SHARED_MEMORY
    assert left.name.startswith(CHECKPOINTS_PREFIX)
    assert left.stat().st_mode & 0o777 == 0o700
    server.kill()
    assert left.is_dir()
    with server:
        assert not left.exists()
        new = folder_of(server)
        assert new.is_dir()
    assert not new.exists()
