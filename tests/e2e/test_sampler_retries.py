"""kill -9 in the middle of samplers with noise, growing latents or steps of their own: same bits.

On a strict server, with previews on: an executor that dies takes neither noise nor sizes with it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import Client, Json, ServerProcess, connect
from kit.loras import write_lora
from kit.prompts import txt2img
from nodeloom.runtime.models.tiny import TINY_INPAINT, write_tiny_sd15
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet
from PIL import Image

INPAINT, LORA, CONTROL = "inpaint.safetensors", "lora.safetensors", "control.safetensors"
PICTURE = "half.png"
STEPS = 12
KILL_AT = 4
SIZE = 128
PREVIEWS = {"preview_method": "latent2rgb"}
SAMPLING = {"denoise", "sample_adaptive"}


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    base = make_base(tmp_path_factory.mktemp("sampler-retries"), checkpoint)
    write_tiny_sd15(base / "models" / "checkpoints" / INPAINT, seed=2, size=TINY_INPAINT)
    write_lora(base / "models" / "loras" / LORA, "locon", seed=1)
    write_tiny_controlnet(base / "models" / "controlnet" / CONTROL, seed=1)
    pixels = np.random.default_rng(1).integers(0, 256, size=(SIZE, SIZE, 4), dtype=np.uint8)
    pixels[..., 3] = np.linspace(255, 0, SIZE).astype(np.uint8)
    Image.fromarray(pixels).save(base / "input" / PICTURE)
    with ServerProcess(base, executors=2, flags=("--strict",)) as running:
        yield running


def node(class_type: str, **inputs: object) -> Json:
    return {"class_type": class_type, "inputs": inputs}


def ancestral_cfg_pp() -> Json:
    return txt2img(seed=5, steps=STEPS, size=SIZE, sampler="euler_ancestral_cfg_pp")


def brownian() -> Json:
    return txt2img(seed=5, steps=STEPS, size=SIZE, sampler="dpmpp_3m_sde")


def custom(sampler: Json) -> Json:
    prompt = txt2img(seed=5, steps=STEPS, size=SIZE)
    prompt["s"] = sampler
    prompt["t"] = node(
        "BasicScheduler", model=["4", 0], scheduler="simple", steps=STEPS, denoise=1.0
    )
    given = {name: prompt["3"]["inputs"][name] for name in ("model", "positive", "negative")}
    prompt["3"] = node(
        "SamplerCustom",
        **given,
        add_noise=True,
        noise_seed=5,
        cfg=4.0,
        sampler=["s", 0],
        sigmas=["t", 0],
        latent_image=["5", 0],
    )
    return prompt


def growing() -> Json:
    """The latents' size changes at each of the first steps, the killed one among them."""
    options = {"scale_ratio": 1.9, "scale_steps": 6, "upscale_method": "bislerp"}
    return custom(node("SamplerLCMUpscale", **options))


def adaptive() -> Json:
    options = {"order": 3, "rtol": 0.005, "atol": 0.0005, "h_init": 0.05}
    options |= {"pcoeff": 0.0, "icoeff": 1.0, "dcoeff": 0.0, "accept_safety": 0.81}
    return custom(node("SamplerDPMAdaptative", **options, eta=0.5, s_noise=1.0))


def painted_in() -> Json:
    """An inpainting checkpoint with its picture, a LoRA and a ControlNet."""
    prompt = txt2img(seed=5, steps=STEPS, size=SIZE, sampler="dpmpp_sde", checkpoint=INPAINT)
    prompt["10"] = node("LoraLoaderModelOnly", model=["4", 0], lora_name=LORA, strength_model=0.8)
    prompt["20"] = node("LoadImage", image=PICTURE)
    prompt["21"] = node(
        "InpaintModelConditioning",
        positive=["6", 0],
        negative=["7", 0],
        vae=["4", 2],
        pixels=["20", 0],
        mask=["20", 1],
        noise_mask=True,
    )
    prompt["30"] = node("ControlNetLoader", control_net_name=CONTROL)
    prompt["40"] = node(
        "ControlNetApplyAdvanced",
        positive=["21", 0],
        negative=["21", 1],
        control_net=["30", 0],
        image=["20", 0],
        strength=0.9,
        start_percent=0.0,
        end_percent=0.7,
    )
    sides = {"positive": ["40", 0], "negative": ["40", 1]}
    prompt["3"]["inputs"] |= {"model": ["10", 0], "latent_image": ["21", 2], **sides}
    return prompt


def one_that_samples(server: ServerProcess) -> Json:
    found: list[Json] = []

    def look() -> bool:
        found[:] = [one for one in server.executors() if one["running"] in SAMPLING]
        return bool(found)

    server.wait_for(look, "sampling")
    return found[0]


async def picture(client: Client, prompt_id: str) -> np.ndarray:
    entry = await client.history(prompt_id)
    assert entry["status"]["completed"], entry["status"]
    with Image.open(io.BytesIO(await client.picture(entry, "9"))) as image:
        return np.asarray(image)


def is_step(message: Json | bytes) -> bool:
    if isinstance(message, bytes) or message["type"] != "progress":
        return False
    return message["data"]["max"] == STEPS and message["data"]["value"] >= KILL_AT


@pytest.mark.parametrize("make", [ancestral_cfg_pp, brownian, growing, painted_in, adaptive])
async def test_an_executor_that_dies_while_it_samples_costs_no_bit(
    server: ServerProcess, make: Callable[[], Json]
) -> None:
    """An adaptive run is one node: it tells of no step, and starts anew."""
    async with connect(server.url) as client:
        undisturbed = await client.submit(make(), extra_data=PREVIEWS)
        await client.end_of(undisturbed["prompt_id"])
        num_previews = sum(isinstance(message, bytes) for message in client.messages)
        client.messages.clear()
        accepted = await client.submit(make(), extra_data=PREVIEWS)
        if make is not adaptive:
            await client.until(is_step)
        server.kill_executor(one_that_samples(server))
        await client.end_of(accepted["prompt_id"])
        exact = await picture(client, undisturbed["prompt_id"])
        assert np.array_equal(await picture(client, accepted["prompt_id"]), exact)
    assert num_previews == (1 if make is adaptive else STEPS)
    side = SIZE if make is not growing else 1.9 * SIZE
    assert exact.shape[0] == pytest.approx(side, abs=8)
