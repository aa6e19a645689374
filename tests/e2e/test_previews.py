"""Previews by TAESD's decoder, on a real server."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from kit.base_directory import make_base
from kit.checkpoints import load_model
from kit.cluster import Client, Json, ServerProcess, connect
from kit.prompts import txt2img
from kit.taesd import DECODER_FILE, write_decoder
from nodeloom.graph_import.families import family
from nodeloom.graph_import.handles import Role
from nodeloom.runtime.models.taesd import TinyDecoder
from nodeloom.runtime.models.weight_files import identify
from PIL import Image

SIDE = 64
PREVIEW_SIDE = 512
STEPS = 2
HEAD_BYTES = 8  # event and format
NEAR = 4.0  # of 255 on average: what JPEG changes


def source_picture() -> np.ndarray:
    """Stripes and a slope, uint8 [64, 64, 3]."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    return np.stack([x * 4, y * 4, (x // 8 % 2) * 200], axis=-1).astype(np.uint8)


def keeping_prompt() -> Json:
    """Image to image under a mask that keeps everything: each step's estimate is the source."""
    prompt = txt2img(seed=71, steps=STEPS)
    source = {"pixels": ["20", 0], "vae": ["4", 2]}
    prompt |= {
        "20": {"class_type": "LoadImage", "inputs": {"image": "source.png"}},
        "21": {"class_type": "VAEEncode", "inputs": source},
        "5": {
            "class_type": "SetLatentNoiseMask",
            "inputs": {"samples": ["21", 0], "mask": ["20", 1]},  # no alpha: all of it is kept
        },
    }
    return prompt


async def previews_of(client: Client, **extra_data: str) -> list[np.ndarray]:
    """The previews of one run, float64 [512, 512, 3]."""
    client.messages.clear()
    entry = await client.run(keeping_prompt(), extra_data=extra_data)
    assert entry["status"]["completed"], entry["status"]
    shown = []
    for frame in client.messages:
        if isinstance(frame, bytes):
            with Image.open(io.BytesIO(frame[HEAD_BYTES:])) as picture:
                assert (picture.format, picture.size) == ("JPEG", (PREVIEW_SIDE, PREVIEW_SIDE))
                shown.append(np.asarray(picture, dtype=np.float64))
    assert len(shown) == STEPS
    return shown


def decoded_source(checkpoint: Path, decoder: Path) -> np.ndarray:
    """What the decoder makes of the source's latents, at the size of previews."""
    pixels = torch.from_numpy(source_picture()).float().div(255.0)[None]
    latent = load_model(checkpoint, Role.VAE).execute(pixels=pixels)["latent"]
    assert isinstance(latent, torch.Tensor)
    tiny = TinyDecoder.load(identify(decoder), "cpu")
    colours = tiny.decode(latent * family("sd15").scale_factor)[0]
    picture = Image.fromarray(colours.mul(255.0).to(torch.uint8).numpy())
    large = picture.resize((PREVIEW_SIDE, PREVIEW_SIDE), Image.Resampling.BILINEAR)
    return np.asarray(large, dtype=np.float64)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).mean())


async def test_previews_are_decoded_once_a_usable_file_lies_in_any_folder_of_vae_approx(
    checkpoint: Path, tmp_path: Path
) -> None:
    base = make_base(tmp_path / "base", checkpoint)
    Image.fromarray(source_picture()).save(base / "input" / "source.png")
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (base / "extra_model_paths.yaml").write_text(f"shelf:\n  vae_approx: {shelf}\n")
    decoder = shelf / DECODER_FILE
    decoder.write_bytes(b"no decoder at all")
    with ServerProcess(base, flags=("--preview-method", "taesd")) as server:
        async with connect(server.url) as client:
            linear = await previews_of(client, preview_method="latent2rgb")
            broken = await previews_of(client)
            write_decoder(decoder)
            decoded = await previews_of(client)
            automatic = await previews_of(client, preview_method="auto")
        refusals = [line for line in server.log if "preview_decoder_refused" in line]
    expected = decoded_source(checkpoint, decoder)
    assert np.array_equal(broken, linear)
    assert len(refusals) == 1
    assert str(decoder) in refusals[0]
    assert expected.std() > 10.0
    assert [distance(shown, expected) < NEAR for shown in decoded] == [True] * STEPS
    assert all(distance(shown, expected) > 3 * NEAR for shown in linear)
    assert np.array_equal(automatic, linear)
