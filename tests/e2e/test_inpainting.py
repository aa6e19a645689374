"""Pictures painted in part, on a real server: inpainting checkpoints, masks that are thresholds."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import Client, Json, ServerProcess, connect
from kit.prompts import txt2img
from nodeloom.runtime.models.tiny import TINY_INPAINT, write_tiny_sd15
from PIL import Image

INPAINT = "inpaint.safetensors"
SIZE = 64


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Strict, with an inpainting checkpoint and a picture whose alpha falls from left to right."""
    base = make_base(tmp_path_factory.mktemp("inpainting"), checkpoint)
    write_tiny_sd15(base / "models" / "checkpoints" / INPAINT, seed=2, size=TINY_INPAINT)
    pixels = np.random.default_rng(1).integers(0, 256, size=(SIZE, SIZE, 4), dtype=np.uint8)
    pixels[..., 3] = np.linspace(255, 0, SIZE).astype(np.uint8)
    Image.fromarray(pixels).save(base / "input" / "half.png")
    with ServerProcess(base, executors=1, flags=("--strict",)) as running:
        yield running


async def draw(client: Client, prompt: Json) -> np.ndarray:
    entry = await client.run(prompt)
    assert entry["status"]["completed"], entry["status"]
    with Image.open(io.BytesIO(await client.picture(entry, "9"))) as picture:
        return np.asarray(picture)


def node(class_type: str, **inputs: object) -> Json:
    return {"class_type": class_type, "inputs": inputs}


def masked(denoise: float = 0.8) -> Json:
    """A picture's transparent part anew."""
    prompt = txt2img(seed=3, steps=4)
    prompt["20"] = node("LoadImage", image="half.png")
    prompt["21"] = node("VAEEncode", pixels=["20", 0], vae=["4", 2])
    prompt["22"] = node("SetLatentNoiseMask", samples=["21", 0], mask=["20", 1])
    prompt["3"]["inputs"] |= {"latent_image": ["22", 0], "denoise": denoise}
    return prompt


def by_sigma(strength: float) -> Json:
    prompt = masked()
    prompt["23"] = node("DifferentialDiffusion", model=["4", 0], strength=strength)
    prompt["3"]["inputs"]["model"] = ["23", 0]
    return prompt


def for_inpainting(*, has_picture: bool) -> Json:
    prompt = txt2img(seed=3, steps=4)
    prompt["4"]["inputs"]["ckpt_name"] = INPAINT
    if has_picture:
        prompt["20"] = node("LoadImage", image="half.png")
        prompt["21"] = node(
            "InpaintModelConditioning",
            positive=["6", 0],
            negative=["7", 0],
            vae=["4", 2],
            pixels=["20", 0],
            mask=["20", 1],
            noise_mask=False,
        )
        sides = {"positive": ["21", 0], "negative": ["21", 1], "latent_image": ["21", 2]}
        prompt["3"]["inputs"] |= sides
    return prompt


async def test_masks_are_read_as_thresholds_as_far_as_asked(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        plain = await draw(client, masked())
        none, half, whole = [await draw(client, by_sigma(share)) for share in (0.0, 0.5, 1.0)]
    assert np.array_equal(plain, none)
    assert not np.array_equal(plain, half)
    assert not np.array_equal(half, whole)


async def test_an_inpainting_checkpoint_sees_the_masked_picture(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        alone = await draw(client, for_inpainting(has_picture=False))
        before = await draw(client, for_inpainting(has_picture=True))
        other = for_inpainting(has_picture=True)
        other["24"] = node("InvertMask", mask=["20", 1])
        other["21"]["inputs"]["mask"] = ["24", 0]
        after = await draw(client, other)
    assert not np.array_equal(alone, before)
    assert not np.array_equal(before, after)
