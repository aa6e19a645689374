"""Models from files of their own, embeddings, other layers, latents and tiles, on a real server."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from kit.base_directory import make_base
from kit.cluster import Client, Json, ServerProcess, connect
from kit.prompts import TINY, txt2img
from nodeloom.runtime.models.headers import DENOISER_PREFIX, VAE_PREFIX
from nodeloom.runtime.models.text.places import SD15_TEXT_PREFIX
from PIL import Image
from safetensors.numpy import load_file, save_file

PARTS = {
    "diffusion_models": DENOISER_PREFIX,
    "text_encoders": SD15_TEXT_PREFIX,
    "vae": VAE_PREFIX,
}


@pytest.fixture(scope="module")
def server(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A strict server whose models folder has the checkpoint's parts too, and an embedding."""
    base = make_base(tmp_path_factory.mktemp("parts"), checkpoint)
    tensors = load_file(base / "models" / "checkpoints" / TINY)
    for kind, prefix in PARTS.items():
        own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        (base / "models" / kind).mkdir(exist_ok=True)
        save_file(own, base / "models" / kind / "own.safetensors")
    (base / "models" / "embeddings" / "sub").mkdir(parents=True)
    vectors = np.linspace(-1, 1, 3 * 64, dtype=np.float32).reshape(3, 64)
    save_file({"emb_params": vectors}, base / "models" / "embeddings" / "sub" / "style.safetensors")
    (base / "models" / "embeddings" / "old.pt").write_bytes(b"PK\x03\x04")
    with ServerProcess(base, executors=2, flags=("--strict",)) as running:
        yield running


async def draw(client: Client, prompt: Json) -> np.ndarray:
    entry = await client.run(prompt)
    assert entry["status"]["completed"], entry["status"]
    with Image.open(io.BytesIO(await client.picture(entry, "9"))) as picture:
        return np.asarray(picture)


def from_parts(prompt: Json) -> Json:
    clip = {"clip_name": "own.safetensors", "type": "stable_diffusion"}
    unet = {"unet_name": "own.safetensors", "weight_dtype": "default"}
    prompt |= {
        "u": {"class_type": "UNETLoader", "inputs": unet},
        "v": {"class_type": "VAELoader", "inputs": {"vae_name": "own.safetensors"}},
        "c": {"class_type": "CLIPLoader", "inputs": clip},
    }
    del prompt["4"]
    prompt["3"]["inputs"]["model"] = ["u", 0]
    prompt["8"]["inputs"]["vae"] = ["v", 0]
    prompt["6"]["inputs"]["clip"] = prompt["7"]["inputs"]["clip"] = ["c", 0]
    return prompt


async def test_parts_draw_what_their_checkpoint_draws(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        whole = await draw(client, txt2img(seed=3))
        assert np.array_equal(await draw(client, from_parts(txt2img(seed=3))), whole)


async def test_an_embedding_counts_and_an_unknown_one_does_not(server: ServerProcess) -> None:
    async with connect(server.url) as client:
        plain = await draw(client, txt2img(seed=4, text="a red cube"))
        styled = await draw(client, txt2img(seed=4, text="a red cube embedding:sub/style"))
        unknown = await draw(client, txt2img(seed=4, text="a red cube embedding:nobody"))
    assert not np.array_equal(plain, styled)
    assert np.array_equal(plain, unknown)


async def test_an_embedding_to_be_unpickled_is_refused(server: ServerProcess) -> None:
    prompt = txt2img(text="a embedding:old")
    status, body = server.post("/prompt", {"prompt": prompt})
    assert status == 400
    (error,) = body["node_errors"]["6"]["errors"]
    assert "embedding old.pt: it would have to be unpickled" in error["details"]


async def test_layers_share_one_encoder_and_differ(server: ServerProcess) -> None:
    def chosen(layer: int) -> Json:
        prompt = txt2img(seed=5)
        options = {"clip": ["4", 1], "stop_at_clip_layer": layer}
        prompt["s"] = {"class_type": "CLIPSetLastLayer", "inputs": options}
        prompt["6"]["inputs"]["clip"] = ["s", 0]
        return prompt

    async with connect(server.url) as client:
        plain = await draw(client, txt2img(seed=5))
        assert not np.array_equal(await draw(client, chosen(-2)), plain)
        assert np.array_equal(await draw(client, chosen(-1)), plain)


async def test_a_picture_goes_through_latent_and_tiled_nodes(server: ServerProcess) -> None:
    tiles = {"tile_size": 64, "overlap": 0, "temporal_size": 64, "temporal_overlap": 8}
    prompt = txt2img(seed=6)
    scaled = {"samples": ["3", 0], "upscale_method": "bislerp", "scale_by": 1.5}
    cut = {"samples": ["r", 0], "batch_index": 1, "length": 1}
    framed = {"image": ["d", 0], "left": 8, "top": 0, "right": 8, "bottom": 0, "feathering": 4}
    prompt |= {
        "b": {"class_type": "LatentUpscaleBy", "inputs": scaled},
        "r": {"class_type": "RepeatLatentBatch", "inputs": {"samples": ["b", 0], "amount": 2}},
        "f": {"class_type": "LatentFromBatch", "inputs": cut},
        "d": {
            "class_type": "VAEDecodeTiled",
            "inputs": {"samples": ["f", 0], "vae": ["4", 2], **tiles},
        },
        "p": {"class_type": "ImagePadForOutpaint", "inputs": framed},
        "i": {"class_type": "ImageInvert", "inputs": {"image": ["p", 0]}},
    }
    del prompt["8"]
    prompt["9"]["inputs"]["images"] = ["i", 0]
    async with connect(server.url) as client:
        drawn = await draw(client, prompt)
    assert drawn.shape == (96, 112, 3)
    assert set(np.unique(drawn[:, :8])) == {127}  # grey, inverted
