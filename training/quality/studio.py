"""Pictures from a real server that runs on the demo models alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from nodeloom.server.client import ServerClient, saved_pictures
from PIL import Image

from ..rendering import Pixels
from ..scenes import SIZE

CHECKPOINT: Final = "nodeloom-shapes.safetensors"
CONTROLNET: Final = "nodeloom-shapes-contours.safetensors"
CFG: Final = 5.0
STEPS: Final = 20
PICTURE_LIMIT_S: Final = 900.0

Prompt = dict[str, Any]


def prompt(
    text: str,
    seed: int,
    *,
    cfg: float = CFG,
    loras: Sequence[tuple[str, float]] = (),
    hint: str | None = None,
) -> Prompt:
    """Text to image as a ComfyUI prompt.

    Args:
        loras: file names and strengths, for the denoiser and the text encoder.
        hint: a picture in the input folder, for the ControlNet.
    """
    nodes: Prompt = {
        "model": _node("CheckpointLoaderSimple", ckpt_name=CHECKPOINT),
        "latent": _node("EmptyLatentImage", width=SIZE, height=SIZE, batch_size=1),
    }
    model, clip = _patched(nodes, loras)
    nodes["positive"] = _node("CLIPTextEncode", text=text, clip=clip)
    nodes["negative"] = _node("CLIPTextEncode", text="", clip=clip)
    positive, negative = ["positive", 0], ["negative", 0]
    if hint is not None:
        nodes["net"] = _node("ControlNetLoader", control_net_name=CONTROLNET)
        nodes["hint"] = _node("LoadImage", image=hint)
        sides = {"positive": positive, "negative": negative}
        given = {"control_net": ["net", 0], "image": ["hint", 0], "strength": 1.0}
        window = {"start_percent": 0.0, "end_percent": 1.0}
        nodes["steered"] = _node("ControlNetApplyAdvanced", **sides, **given, **window)
        positive, negative = ["steered", 0], ["steered", 1]
    nodes["sampler"] = _node(
        "KSampler",
        model=model,
        seed=seed,
        steps=STEPS,
        cfg=cfg,
        sampler_name="dpmpp_2m",
        scheduler="normal",
        positive=positive,
        negative=negative,
        latent_image=["latent", 0],
        denoise=1.0,
    )
    nodes["decoded"] = _node("VAEDecode", samples=["sampler", 0], vae=["model", 2])
    nodes["saved"] = _node("SaveImage", images=["decoded", 0], filename_prefix="quality")
    return nodes


def _patched(nodes: Prompt, loras: Sequence[tuple[str, float]]) -> tuple[list[Any], list[Any]]:
    """The denoiser and the text encoder behind the LoRAs, whose nodes are added."""
    model, clip = ["model", 0], ["model", 1]
    for index, (name, strength) in enumerate(loras):
        strengths = {"strength_model": strength, "strength_clip": strength}
        nodes[f"lora{index}"] = _node(
            "LoraLoader", model=model, clip=clip, lora_name=name, **strengths
        )
        model, clip = [f"lora{index}", 0], [f"lora{index}", 1]
    return model, clip


async def draw(client: ServerClient, prompts: Sequence[Prompt], folder: Path) -> list[Pixels]:
    """The pictures of all prompts, in their order. Raises: RuntimeError: one of them failed."""
    accepted = [await client.submit(each, "demo quality") for each in prompts]
    pictures: list[Pixels] = []
    for request in accepted:
        entry = await _ended(client, request.prompt_id)
        saved = saved_pictures(entry)
        if len(saved) != 1:
            raise RuntimeError(f"a picture was not drawn: {entry.get('status')}")
        path = await client.download(saved[0], folder)
        with Image.open(path) as image:
            pictures.append(np.asarray(image.convert("RGB")))
    return pictures


async def _ended(client: ServerClient, prompt_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + PICTURE_LIMIT_S
    while time.monotonic() < deadline:
        entry = await client.history_entry(prompt_id)
        if entry is not None:
            return entry
        await asyncio.sleep(0.2)
    raise RuntimeError(f"a picture was not drawn within {PICTURE_LIMIT_S:g} s")


def _node(class_type: str, **inputs: object) -> dict[str, object]:
    return {"class_type": class_type, "inputs": inputs}
