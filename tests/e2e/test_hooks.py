"""LoRAs that hang on texts: on all of them they are LoRAs on the model, at every step and bit."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import ServerProcess, connect
from kit.loras import write_lora
from kit.prompts import txt2img
from nodeloom.runtime.models.tiny_controlnet import write_tiny_controlnet
from PIL import Image

Prompt = dict[str, Any]

STEPS = 4
LORA = "a.safetensors"
STRENGTH = 0.8
CONTROLNET = "control.safetensors"
HINT = "hint.png"


def node(class_type: str, **inputs: object) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    base = make_base(tmp_path_factory.mktemp("hooks"), checkpoint)
    write_lora(base / "models" / "loras" / LORA, "locon", seed=1)
    write_tiny_controlnet(base / "models" / "controlnet" / CONTROLNET, seed=0)
    Image.new("RGB", (64, 64), (90, 200, 30)).save(base / "input" / HINT)
    with ServerProcess(base, executors=2, flags=("--strict",)) as process:
        yield process


def with_hooks(*keyframes: tuple[float, float], sides: tuple[str, ...] = ("6", "7")) -> Prompt:
    """A text to image whose texts `sides` have the LoRA, at the strengths of the keyframes."""
    prompt = txt2img(steps=STEPS)
    prompt["20"] = node("CreateHookLoraModelOnly", lora_name=LORA, strength_model=STRENGTH)
    hooks, before = ["20", 0], None
    for number, (start, strength) in enumerate(keyframes):
        name = f"3{number}"
        prompt[name] = node("CreateHookKeyframe", strength_mult=strength, start_percent=start)
        if before is not None:
            prompt[name]["inputs"]["prev_hook_kf"] = before
        before = [name, 0]
    if before is not None:
        prompt["40"] = node("SetHookKeyframes", hooks=hooks, hook_kf=before)
        hooks = ["40", 0]
    for side in sides:
        prompt[f"5{side}"] = node(
            "ConditioningSetProperties",
            cond_NEW=[side, 0],
            strength=1.0,
            set_cond_area="default",
            hooks=hooks,
        )
        prompt["3"]["inputs"]["positive" if side == "6" else "negative"] = [f"5{side}", 0]
    return prompt


def on_the_model() -> Prompt:
    prompt = txt2img(steps=STEPS)
    prompt["10"] = node(
        "LoraLoaderModelOnly", model=["4", 0], lora_name=LORA, strength_model=STRENGTH
    )
    prompt["3"]["inputs"]["model"] = ["10", 0]
    return prompt


async def drawn(server: ServerProcess, prompt: Prompt) -> np.ndarray:
    async with connect(server.url) as client:
        entry = await client.run(prompt)
        assert entry["status"]["status_str"] == "success", entry["status"]
        with Image.open(io.BytesIO(await client.picture(entry, "9"))) as picture:
            return np.asarray(picture).astype(int)


async def test_hooks_on_every_text_are_the_lora_on_the_model(server: ServerProcess) -> None:
    plain = await drawn(server, txt2img(steps=STEPS))
    patched = await drawn(server, on_the_model())
    assert not np.array_equal(plain, patched)
    assert np.array_equal(await drawn(server, with_hooks()), patched)
    assert np.array_equal(await drawn(server, with_hooks((0.0, 1.0))), patched)
    assert np.array_equal(await drawn(server, with_hooks((0.0, 0.0))), plain)


async def test_hooks_on_the_text_encoder_are_the_lora_on_both_models(
    server: ServerProcess,
) -> None:
    """As a LoraLoader has them."""
    strengths = {"strength_model": STRENGTH, "strength_clip": 0.6}
    loaded, under = txt2img(steps=STEPS), txt2img(steps=STEPS)
    loaded["10"] = node("LoraLoader", model=["4", 0], clip=["4", 1], lora_name=LORA, **strengths)
    loaded["3"]["inputs"]["model"] = ["10", 0]
    under["20"] = node("CreateHookLora", lora_name=LORA, **strengths)
    under["10"] = node(
        "SetClipHooks",
        clip=["4", 1],
        apply_to_conds=True,
        schedule_clip=False,
        hooks=["20", 0],
    )
    for prompt, clip in ((loaded, ["10", 1]), (under, ["10", 0])):
        for text in ("6", "7"):
            prompt[text]["inputs"]["clip"] = clip
    assert np.array_equal(await drawn(server, loaded), await drawn(server, under))
    assert not np.array_equal(await drawn(server, loaded), await drawn(server, on_the_model()))


def steered(prompt: Prompt) -> Prompt:
    """The prompt with a ControlNet on both of its sides."""
    inputs = prompt["3"]["inputs"]
    prompt["60"] = node("LoadImage", image=HINT)
    prompt["61"] = node("ControlNetLoader", control_net_name=CONTROLNET)
    prompt["62"] = node(
        "ControlNetApplyAdvanced",
        positive=inputs["positive"],
        negative=inputs["negative"],
        control_net=["61", 0],
        image=["60", 0],
        strength=0.9,
        start_percent=0.0,
        end_percent=0.6,
    )
    inputs |= {"positive": ["62", 0], "negative": ["62", 1]}
    return prompt


async def test_a_controlnet_steers_calls_under_hooks(server: ServerProcess) -> None:
    patched = await drawn(server, steered(on_the_model()))
    assert not np.array_equal(patched, await drawn(server, on_the_model()))
    assert np.array_equal(await drawn(server, steered(with_hooks())), patched)


async def test_hooks_on_one_side_are_a_picture_of_their_own(server: ServerProcess) -> None:
    pictures = [
        await drawn(server, with_hooks(sides=sides)) for sides in (("6",), ("7",), ("6", "7"))
    ]
    assert not np.array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[0], pictures[2])


async def test_a_keyframe_ends_a_hook(server: ServerProcess) -> None:
    """Two windows of steps, the LoRA on the model of the first one only, are nearly the same.

    Between them the latents go through the scale of their format, which rounds them.
    """
    prompt = on_the_model()
    sampler = prompt.pop("3")["inputs"]
    shared = {n: v for n, v in sampler.items() if n not in ("seed", "denoise", "latent_image")}
    prompt["40"] = node(
        "KSamplerAdvanced",
        **shared,
        noise_seed=sampler["seed"],
        latent_image=sampler["latent_image"],
        add_noise="enable",
        start_at_step=0,
        end_at_step=2,
        return_with_leftover_noise="enable",
    )
    prompt["41"] = node(
        "KSamplerAdvanced",
        **{**shared, "model": ["4", 0]},
        noise_seed=sampler["seed"],
        latent_image=["40", 0],
        add_noise="disable",
        start_at_step=2,
        end_at_step=STEPS,
        return_with_leftover_noise="disable",
    )
    prompt["8"]["inputs"]["samples"] = ["41", 0]
    windows = await drawn(server, prompt)
    # Of 4 steps of the normal schedule the second begins at a third, the third at two thirds.
    ended = await drawn(server, with_hooks((0.0, 1.0), (0.45, 0.0)))
    assert np.abs(windows - ended).max() <= 1
    assert not np.array_equal(ended, await drawn(server, with_hooks()))


async def test_a_sampler_of_its_own_steps_takes_no_hooks(server: ServerProcess) -> None:
    prompt = with_hooks()
    prompt["3"]["inputs"]["sampler_name"] = "dpm_adaptive"
    status, answer = server.post("/prompt", {"prompt": prompt})
    assert status == 400
    (problem,) = answer["node_errors"]["3"]["errors"]
    assert "no hook can patch its model" in problem["details"]
    assert problem["extra_info"]["input_name"] == "positive"
