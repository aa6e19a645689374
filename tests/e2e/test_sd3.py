"""SD3 on a real server: what two executors draw is what the nodes give in one process, bit for bit.

That the nodes give ComfyUI's numbers is shown by the goldens (`conformance/graphs.py`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from kit.cluster import Client, Json, ServerProcess, connect
from kit.in_process import InProcess
from kit.prompts import txt2img
from kit.tiny_text import T5Size, clip_g_spec, t5_spec
from nodeloom.runtime.models.tiny import TINY, TextSize, text_spec, write_spec
from nodeloom.runtime.models.tiny_sd3 import (
    MmditSize,
    Sd3Size,
    mmdit_spec,
    write_tiny_sd3,
    write_tiny_sd3_controlnet,
)
from nodeloom.runtime.models.weight_spec import Spec, materialise
from PIL import Image
from safetensors.numpy import save_file

CHECKPOINT = "tiny-sd3.safetensors"
SIZE = 64
# CLIP-L's own vectors are 64 wide here; for CLIP-G, which the checkpoint lacks, 1280 zeros stand.
WHOLE = Sd3Size(
    mmdit=MmditSize(num_blocks=2, context=4096, pooled=64 + 1280, positions=32),
    vae=TINY.vae,
    text=TINY.text,
)
BOTH_CLIPS = MmditSize(num_blocks=2, context=4096, pooled=64 + 64, positions=32)
CLIP_G = TextSize(width=64, num_layers=32, inner=64)  # it is told from CLIP-L by its many layers
T5 = T5Size(width=4096, num_layers=1, inner=64, feed_forward=64, vocabulary=128)
LORA = "transformer.transformer_blocks.0.attn.to_q"
TEXT_LORA = "lora_te1_text_model_encoder_layers_0_mlp_fc1"


def make_sd3_base(base: Path) -> Path:
    models = base / "models"
    write_tiny_sd3(models / "checkpoints" / CHECKPOINT, size=WHOLE)
    write_tiny_sd3_controlnet(models / "controlnet" / "control.safetensors", size=WHOLE.mmdit)
    write_spec(models / "diffusion_models" / "both.safetensors", mmdit_spec(BOTH_CLIPS), 1)
    for name, spec in {
        "l": text_spec(TINY.text),
        "g": clip_g_spec(CLIP_G),
        "t5": t5_spec(T5),
    }.items():
        write_spec(models / "text_encoders" / f"{name}.safetensors", spec, 2)
    lora, width = Spec(), WHOLE.mmdit.width
    for stem, outer, inner in ((LORA, width, width), (TEXT_LORA, 128, 64)):
        lora.noise(f"{stem}.lora_down.weight", 4, inner, std=0.5)
        lora.noise(f"{stem}.lora_up.weight", outer, 4, std=0.5)
    (models / "loras").mkdir()
    save_file(materialise(lora, 3), models / "loras" / "style.safetensors")
    pixels = np.random.default_rng(1).integers(0, 256, size=(SIZE, SIZE, 4), dtype=np.uint8)
    pixels[..., 3] = np.linspace(255, 0, SIZE).astype(np.uint8)
    (base / "input").mkdir()
    Image.fromarray(pixels).save(base / "input" / "half.png")
    return base


def node(class_type: str, **inputs: object) -> Json:
    return {"class_type": class_type, "inputs": inputs}


def plain(**sampling: object) -> Json:
    prompt = txt2img(checkpoint=CHECKPOINT, text="a (red:1.3) cube", seed=5, **sampling)
    prompt["5"] = node("EmptySD3LatentImage", width=SIZE, height=SIZE, batch_size=1)
    return prompt


def from_picture() -> Json:
    prompt = plain(denoise=0.6)
    prompt["20"] = node("LoadImage", image="half.png")
    prompt["21"] = node("VAEEncode", pixels=["20", 0], vae=["4", 2])
    prompt["3"]["inputs"]["latent_image"] = ["21", 0]
    return prompt


def masked() -> Json:
    prompt = from_picture()
    prompt["22"] = node("SetLatentNoiseMask", samples=["21", 0], mask=["20", 1])
    prompt["3"]["inputs"]["latent_image"] = ["22", 0]
    return prompt


def shifted() -> Json:
    prompt = plain()
    prompt["23"] = node("ModelSamplingSD3", model=["4", 0], shift=5.0)
    prompt["3"]["inputs"]["model"] = ["23", 0]
    return prompt


def steered() -> Json:
    prompt = plain()
    prompt["20"] = node("LoadImage", image="half.png")
    prompt["24"] = node("ControlNetLoader", control_net_name="control.safetensors")
    prompt["25"] = node(
        "ControlNetApplySD3",
        positive=["6", 0],
        negative=["7", 0],
        control_net=["24", 0],
        vae=["4", 2],
        image=["20", 0],
        strength=0.9,
        start_percent=0.0,
        end_percent=0.8,
    )
    prompt["3"]["inputs"] |= {"positive": ["25", 0], "negative": ["25", 1]}
    return prompt


def patched() -> Json:
    prompt = plain()
    prompt["26"] = node(
        "LoraLoader",
        model=["4", 0],
        clip=["4", 1],
        lora_name="style.safetensors",
        strength_model=0.8,
        strength_clip=0.8,
    )
    prompt["3"]["inputs"]["model"] = ["26", 0]
    prompt["6"]["inputs"]["clip"] = prompt["7"]["inputs"]["clip"] = ["26", 1]
    return prompt


def from_parts() -> Json:
    """A denoiser of its own, three files of text encoders, a text for each of them."""
    prompt = plain()
    prompt["27"] = node("UNETLoader", unet_name="both.safetensors", weight_dtype="default")
    prompt["28"] = node(
        "TripleCLIPLoader",
        clip_name1="t5.safetensors",
        clip_name2="l.safetensors",
        clip_name3="g.safetensors",
    )
    words = {"clip_l": "a cube", "clip_g": "a (blue:1.2) cube", "t5xxl": "a cube on a table"}
    prompt["6"] = node("CLIPTextEncodeSD3", clip=["28", 0], empty_padding="none", **words)
    prompt["7"] = node("CLIPTextEncode", clip=["28", 0], text="blurry")
    prompt["3"]["inputs"]["model"] = ["27", 0]
    return prompt


PROMPTS: dict[str, Callable[[], Json]] = {
    "plain": plain,
    "from a picture": from_picture,
    "masked": masked,
    "shifted": shifted,
    "steered": steered,
    "patched": patched,
    "from parts": from_parts,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sd3_base(tmp_path_factory.mktemp("sd3"))


@pytest.fixture(scope="module")
def server(base: Path) -> Iterator[ServerProcess]:
    with ServerProcess(base, executors=2, flags=("--strict",)) as running:
        yield running


@pytest.fixture(scope="module")
def expected(base: Path) -> dict[str, np.ndarray]:
    """Each prompt's picture from its nodes in this process, as SaveImage stores it."""
    torch.set_num_threads(1)
    process = InProcess(base)
    return {name: as_saved(process.run(make())["8"][0]) for name, make in PROMPTS.items()}


def as_saved(image: torch.Tensor) -> np.ndarray:
    return (image[0].numpy() * 255.0).clip(0, 255).astype(np.uint8)


async def draw(client: Client, prompt: Json) -> np.ndarray:
    entry = await client.run(prompt)
    assert entry["status"]["completed"], entry["status"]
    with Image.open(io.BytesIO(await client.picture(entry, "9"))) as picture:
        return np.asarray(picture)


def test_everything_asked_for_changes_the_picture(expected: dict[str, np.ndarray]) -> None:
    pictures = list(expected.values())
    for index, picture in enumerate(pictures):
        assert not any(np.array_equal(picture, other) for other in pictures[:index])


@pytest.mark.parametrize("name", PROMPTS)
async def test_a_server_draws_what_the_nodes_give(
    name: str, server: ServerProcess, expected: dict[str, np.ndarray]
) -> None:
    async with connect(server.url) as client:
        assert np.array_equal(await draw(client, PROMPTS[name]()), expected[name])


async def test_text_encoders_of_several_files_are_one_resident_model(
    server: ServerProcess,
) -> None:
    async with connect(server.url) as client:
        await draw(client, from_parts())
    resident = {label for executor in server.executors() for label in executor["resident"]}
    assert "sd3/text_encoder:l.safetensors+g.safetensors+t5.safetensors" in resident


@pytest.mark.parametrize(
    ("changes", "details"),
    [
        ({"clip_name3": "l.safetensors"}, "clip_name3 - l.safetensors holds clip_l, as"),
        ({"clip_name1": "gone.safetensors"}, "clip_name1: 'gone.safetensors' not in"),
    ],
)
def test_files_that_make_no_text_encoder_are_refused(
    server: ServerProcess, changes: Json, details: str
) -> None:
    prompt = from_parts()
    prompt["28"]["inputs"] |= changes
    status, answer = server.post("/prompt", {"prompt": prompt})
    assert status == 400
    errors = answer["node_errors"]["28"]["errors"]
    assert errors[0]["details"].startswith(details)
