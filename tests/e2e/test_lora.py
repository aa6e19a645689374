"""LoRAs through a real cluster: the same bits at once and alone, one base, reports, refusals."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import Client, Json, ServerProcess, connect
from kit.loras import lora_spec, write_lora
from kit.prompts import txt2img
from nodeloom.runtime.models.weight_spec import Spec, materialise
from PIL import Image
from safetensors.numpy import save_file

STRICT = ("--strict",)
LORAS: dict[str, str | None] = {"a": "a.safetensors", "b": "b.safetensors", "none": None}


def make_lora_base(folder: Path, checkpoint: Path) -> Path:
    """The tiny checkpoint, two LoRAs for it, and one for another model."""
    base = make_base(folder, checkpoint)
    loras = base / "models" / "loras"
    write_lora(loras / "a.safetensors", "locon", seed=1)
    write_lora(loras / "b.safetensors", "dora", seed=2)
    foreign = Spec({"lora_unet_double_blocks_0_img_mlp_0.diff": ((4, 4), 0.0, 1.0)})
    save_file(materialise(foreign, 0), loras / "flux.safetensors")
    return base


def with_lora(name: str | None, *, seed: int = 5, steps: int = 4, strength: float = 0.8) -> Json:
    prompt = txt2img(seed=seed, steps=steps)
    if name is not None:
        prompt["10"] = {
            "class_type": "LoraLoader",
            "inputs": {
                "model": ["4", 0],
                "clip": ["4", 1],
                "lora_name": name,
                "strength_model": strength,
                "strength_clip": strength,
            },
        }
        prompt["3"]["inputs"]["model"] = ["10", 0]
        for encoder in ("6", "7"):
            prompt[encoder]["inputs"]["clip"] = ["10", 1]
    return prompt


async def draw(client: Client, name: str | None) -> np.ndarray:
    entry = await client.run(with_lora(name))
    assert entry["status"]["completed"], entry["status"]
    return await picture_of(client, entry)


async def picture_of(client: Client, entry: Json) -> np.ndarray:
    with Image.open(io.BytesIO(await client.picture(entry, "9"))) as picture:
        return np.asarray(picture)


@pytest.fixture(scope="module")
def alone(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Each picture from a strict executor that has seen no other LoRA: one server for each."""

    async def one(server: ServerProcess, name: str | None) -> np.ndarray:
        async with connect(server.url) as client:
            return await draw(client, name)

    drawn = {}
    for key, name in LORAS.items():
        base = make_lora_base(tmp_path_factory.mktemp(f"alone-{key}"), checkpoint)
        with ServerProcess(base, executors=1, flags=STRICT) as server:
            drawn[key] = asyncio.run(one(server, name))
    return drawn


@pytest.fixture(scope="module")
def pair(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    base = make_lora_base(tmp_path_factory.mktemp("lora-pair"), checkpoint)
    with ServerProcess(base, executors=2, flags=STRICT) as server:
        yield server


def test_a_lora_changes_the_picture(alone: dict[str, np.ndarray]) -> None:
    assert not np.array_equal(alone["a"], alone["none"])
    assert not np.array_equal(alone["b"], alone["none"])
    assert not np.array_equal(alone["a"], alone["b"])


async def test_three_at_once_on_two_executors_draw_what_each_draws_alone(
    pair: ServerProcess, alone: dict[str, np.ndarray]
) -> None:
    async def one(key: str) -> None:
        async with connect(pair.url) as client:
            assert np.array_equal(await draw(client, LORAS[key]), alone[key]), key

    for _ in range(2):
        async with asyncio.TaskGroup() as group:
            for key in LORAS:
                group.create_task(one(key))
    for executor in pair.executors():
        assert executor["num_loads"] == len(executor["resident"]) <= 3


async def test_the_job_record_says_what_a_lora_changed(pair: ServerProcess) -> None:
    async with connect(pair.url) as client:
        entry = await client.run(with_lora("a.safetensors", steps=1))
        plain = await client.run(with_lora(None, steps=1))
    assert "nodeloom" not in plain
    keys = lora_spec("locon")
    reports = {report["model"].partition(":")[0]: report for report in entry["nodeloom"]["patches"]}
    for model, prefix in (("sd15/denoiser", "lora_unet_"), ("sd15/text_encoder", "lora_te_")):
        assert reports[model]["file"] == "a.safetensors"
        assert reports[model]["applied"] == sum(key.startswith(prefix) for key in keys)
        assert reports[model]["ignored"] == reports[model]["misshapen"] == 0
        assert reports[model]["ignored_keys"] == reports[model]["misshapen_keys"] == []


async def test_a_lora_for_another_model_fails_its_own_request_and_is_named(
    pair: ServerProcess, alone: dict[str, np.ndarray]
) -> None:
    async with connect(pair.url) as client, connect(pair.url) as neighbour:
        drawing = asyncio.create_task(draw(neighbour, "b.safetensors"))
        entry = await client.run(with_lora("flux.safetensors"))
        assert np.array_equal(await drawing, alone["b"])
    name, data = entry["status"]["messages"][-1]
    assert (name, data["node_type"]) == ("execution_error", "KSampler")
    assert "flux.safetensors matches nothing" in data["exception_message"]
    async with connect(pair.url) as client:
        assert np.array_equal(await draw(client, None), alone["none"])


async def test_an_executor_killed_between_patched_steps_costs_no_bit(
    pair: ServerProcess, alone: dict[str, np.ndarray]
) -> None:
    async with connect(pair.url) as client:
        accepted = await client.submit(with_lora("a.safetensors"))
        await client.until(lambda m: isinstance(m, dict) and m["type"] == "progress")
        busy = [executor for executor in pair.executors() if executor["running"]]
        pair.kill_executor((busy or pair.executors())[0])
        await client.end_of(accepted["prompt_id"])
        entry = await client.history(accepted["prompt_id"])
        assert np.array_equal(await picture_of(client, entry), alone["a"])
    pair.wait_for(lambda: len(pair.executors()) == 2, "the executor's return")


def refused(server: ServerProcess, name: str) -> Json:
    status, answer = server.post("/prompt", {"prompt": with_lora(name)})
    assert status == 400
    return answer["node_errors"]["10"]["errors"][0]


def test_a_missing_lora_is_refused(pair: ServerProcess) -> None:
    assert refused(pair, "missing.safetensors")["type"] == "value_not_in_list"
    assert refused(pair, "../../a.safetensors")["type"] == "value_not_in_list"


@pytest.mark.parametrize(
    ("name", "start", "reason"),
    [("cut.safetensors", b"", "truncated"), ("old.ckpt", b"PK\x03\x04", "pickled")],
)
def test_an_unreadable_lora_is_refused_by_name(
    pair: ServerProcess, name: str, start: bytes, reason: str
) -> None:
    folder = pair.base / "models" / "loras"
    whole = (folder / "a.safetensors").read_bytes()
    (folder / name).write_bytes(start + whole[: len(whole) // 2])
    problem = refused(pair, name)
    (folder / name).unlink()
    assert problem["type"] == "custom_validation_failed"
    assert problem["extra_info"]["input_name"] == "lora_name"
    assert name in problem["details"]
    assert reason in problem["details"]
