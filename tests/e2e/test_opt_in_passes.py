"""Approximate caching and asynchronous LoRAs through real servers: opt-in, hit, miss, bound."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import Client, Json, ServerProcess, connect
from kit.loras import write_lora
from kit.prompts import txt2img
from PIL import Image

LEVELS = [{"similarity": 0.999, "skip": 0.4}, {"similarity": 0.5, "skip": 0.2}]
CACHE = {"approximate_cache": {"levels": LEVELS}}
CACHE_GB = 0.0002  # some six of the small states
LORA = "a.safetensors"


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    base = make_base(tmp_path_factory.mktemp("passes"), checkpoint)
    write_lora(base / "models" / "loras" / LORA, seed=1)
    flags = ("--latents-cache-gb", str(CACHE_GB))
    with ServerProcess(base, executors=2, flags=flags) as server:
        yield server


@dataclass(frozen=True)
class Drawn:
    """A picture, the values of its progress bar, and what ran for it."""

    picture: np.ndarray
    progress: list[int]
    ops: list[str]

    @property
    def num_evaluations(self) -> int:
        return self.ops.count("denoise")


async def draw(client: Client, prompt: Json, passes: Json | None = None) -> Drawn:
    extra_data = {} if passes is None else {"passes": passes}
    accepted = await client.submit(prompt, extra_data=extra_data)
    request_id = accepted["prompt_id"]
    await client.end_of(request_id)
    entry = await client.history(request_id)
    assert entry["status"]["completed"], entry["status"]
    with Image.open(io.BytesIO(await client.picture(entry, "9"))) as picture:
        pixels = np.asarray(picture)
    told = [m["data"]["value"] for m in client.texts(request_id) if m["type"] == "progress"]
    async with client.session.get(f"{client.url}/nodeloom/requests/{request_id}/graph") as answer:
        ops = [node["op"] for node in (await answer.json())["nodes"]]
    return Drawn(pixels, told, ops)


def lookups(drawn: Drawn) -> list[str]:
    return [op for op in drawn.ops if op.startswith("latents_")]


def kept(server: ServerProcess) -> list[Path]:
    folder = server.base / "user" / "nodeloom" / "latents"
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


async def test_a_miss_draws_the_exact_picture_and_a_hit_skips_the_stated_share(
    server: ServerProcess,
) -> None:
    prompt = txt2img(text="a red cube", steps=10, cfg=5.0)
    async with connect(server.url) as client:
        exact = await draw(client, prompt)
        assert lookups(exact) == []
        assert kept(server) == []  # nobody opted in
        miss = await draw(client, prompt, CACHE)
        assert lookups(miss) == ["latents_lookup", "latents_store", "latents_store"]
        assert miss.progress == list(range(1, 11))
        assert np.array_equal(miss.picture, exact.picture)
        same = await draw(client, prompt, CACHE)
        similar = await draw(client, txt2img(text="two red cubes", steps=10, cfg=5.0), CACHE)
        unrelated = await draw(client, txt2img(text="a red cube", steps=10, cfg=6.0), CACHE)
        again = await draw(client, prompt)
    assert (same.num_evaluations, similar.num_evaluations) == (6, 8)
    assert same.progress == list(range(5, 11))
    assert lookups(same) == lookups(similar) == ["latents_lookup", "latents_resume"]
    assert np.array_equal(same.picture, exact.picture)  # its own latents, and no noise on the way
    assert unrelated.num_evaluations == 10
    assert lookups(again) == []


async def test_a_hit_has_the_noise_of_its_own_seed(server: ServerProcess) -> None:
    def ancestral(seed: int) -> Json:
        return txt2img(text="a fox", steps=5, sampler="euler_ancestral", seed=seed)

    async with connect(server.url) as client:
        await draw(client, ancestral(1), CACHE)
        pictures = [(await draw(client, ancestral(seed), CACHE)) for seed in (2, 3)]
    assert [drawn.num_evaluations for drawn in pictures] == [3, 3]
    assert not np.array_equal(pictures[0].picture, pictures[1].picture)


@pytest.mark.parametrize("sampler", ["uni_pc", "ipndm_v", "dpmpp_3m_sde"])
async def test_a_hit_goes_on_with_what_the_sampler_knew(
    server: ServerProcess, sampler: str
) -> None:
    """Earlier estimates are kept; a Brownian path follows from the seed at any step."""
    prompt = txt2img(text="an owl", steps=5, sampler=sampler, seed=4)
    async with connect(server.url) as client:
        miss, hit = await draw(client, prompt, CACHE), await draw(client, prompt, CACHE)
    assert (miss.num_evaluations, hit.num_evaluations) == (5, 3)
    assert np.array_equal(hit.picture, miss.picture)


async def test_latents_that_have_grown_are_kept_in_their_size(server: ServerProcess) -> None:
    prompt = txt2img(text="an owl", seed=4)
    given = {name: prompt["3"]["inputs"][name] for name in ("model", "positive", "negative")}
    steps = {"model": ["4", 0], "scheduler": "simple", "steps": 5, "denoise": 1.0}
    growth = {"scale_ratio": 2.0, "scale_steps": 3, "upscale_method": "bilinear"}
    run = {"noise_seed": 4, "add_noise": True, "cfg": 4.0, "latent_image": ["5", 0]}
    prompt |= {
        "20": {"class_type": "SamplerLCMUpscale", "inputs": growth},
        "21": {"class_type": "BasicScheduler", "inputs": steps},
        "3": {
            "class_type": "SamplerCustom",
            "inputs": {**given, **run, "sampler": ["20", 0], "sigmas": ["21", 0]},
        },
    }
    async with connect(server.url) as client:
        miss, hit = await draw(client, prompt, CACHE), await draw(client, prompt, CACHE)
    assert (miss.num_evaluations, hit.num_evaluations) == (5, 3)
    assert hit.picture.shape == miss.picture.shape == (128, 128, 3)


async def test_the_files_stay_within_their_bound_whatever_is_asked(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        for number in range(12):
            for path in kept(server):
                os.utime(path, (number, number))  # used long ago: may be deleted
            await draw(client, txt2img(steps=5, cfg=2.0 + number), CACHE)
            assert sum(path.stat().st_size for path in kept(server)) <= CACHE_GB * 1e9
    assert kept(server) != []


async def test_two_executors_lost_in_the_middle_cost_no_bit(server: ServerProcess) -> None:
    prompt = txt2img(text="a heron", steps=10, cfg=3.5)
    async with connect(server.url) as client:
        exact = await draw(client, prompt)
        await draw(client, prompt, CACHE)
        accepted = await client.submit(prompt, extra_data={"passes": CACHE})
        await client.until(lambda m: isinstance(m, dict) and m["type"] == "progress")
        for executor in server.executors():
            server.kill_executor(executor)
        await client.end_of(accepted["prompt_id"])
        entry = await client.history(accepted["prompt_id"])
        with Image.open(io.BytesIO(await client.picture(entry, "9"))) as picture:
            assert np.array_equal(np.asarray(picture), exact.picture)
    server.wait_for(lambda: len(server.executors()) == 2, "the executors' return")


def with_lora() -> Json:
    prompt = txt2img(text="a red cube", steps=6)
    prompt["10"] = {
        "class_type": "LoraLoaderModelOnly",
        "inputs": {"model": ["4", 0], "lora_name": LORA, "strength_model": 0.8},
    }
    prompt["3"]["inputs"]["model"] = ["10", 0]
    return prompt


async def test_an_asynchronous_lora_takes_effect_at_its_step_alone(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        plain = await draw(client, txt2img(text="a red cube", steps=6))
        patched = await draw(client, with_lora())
        late = await draw(client, with_lora(), {"async_lora": {"steps": 2}})
        again = await draw(client, with_lora(), {"async_lora": {"steps": 2}})
        later = await draw(client, with_lora(), {"async_lora": {"steps": 3}})
    assert [op for op in late.ops if op.startswith("patch_")] == ["patch_trigger", "patch_check"]
    assert np.array_equal(late.picture, again.picture)
    different = [plain, patched, late, later]
    for index, one in enumerate(different):
        for other in different[index + 1 :]:
            assert not np.array_equal(one.picture, other.picture)


async def test_an_invocation_of_a_registered_workflow_may_ask_too(server: ServerProcess) -> None:
    registered = {
        "prompt": txt2img(steps=10, cfg=4.5),
        "parameters": {"text": {"node": "6", "input": "text"}},
    }
    path = "/nodeloom/workflows/drawn"
    counts = []
    async with connect(server.url) as client:
        async with client.session.put(server.url + path, json=registered) as answer:
            assert answer.status == 201, await answer.text()
        for text in ("a lynx", "a lynx"):
            body = {"inputs": {"text": text}, "wait": True, "extra_data": {"passes": CACHE}}
            async with client.session.post(f"{server.url}{path}/invoke", json=body) as answer:
                told = await answer.json()
            assert told["status"] == "success", told
            graph = server.get(f"/nodeloom/requests/{told['prompt_id']}/graph")
            counts.append([node["op"] for node in graph["nodes"]].count("denoise"))
        assert counts == [10, 6]
        nonsense = {"extra_data": {"passes": {"approximate_cache": 3}}}
        async with client.session.post(f"{server.url}{path}/invoke", json=nonsense) as answer:
            assert answer.status == 400


def test_what_makes_no_sense_is_refused(server: ServerProcess) -> None:
    body = {"prompt": txt2img(), "extra_data": {"passes": {"approximate_cache": {"levels": []}}}}
    status, answer = server.post("/prompt", body)
    assert status == 400
    assert "levels" in answer["error"]["details"]


async def test_strict_mode_refuses_the_cache_and_takes_loras_late_to_the_bit(
    checkpoint: Path, tmp_path: Path
) -> None:
    base = make_base(tmp_path, checkpoint)
    write_lora(base / "models" / "loras" / LORA, seed=1)
    asked = {"async_lora": {"steps": 2}}
    with ServerProcess(base, executors=1, flags=("--strict",)) as server:
        body = {"prompt": txt2img(), "extra_data": {"passes": CACHE}}
        status, answer = server.post("/prompt", body)
        assert (status, answer["error"]["type"]) == (400, "strict_mode")
        async with connect(server.url) as client, connect(server.url) as neighbour:
            alone = await draw(client, with_lora(), asked)
            accepted = await neighbour.submit(txt2img(text="a red cube", steps=6, seed=9))
            beside = await draw(client, with_lora(), asked)
            await neighbour.end_of(accepted["prompt_id"])
        assert np.array_equal(alone.picture, beside.picture)
        assert kept(server) == []
