"""SD1.5's models give ComfyUI's numbers, alone or in a batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kit.checkpoints import load_model
from nodeloom.graph_import.families import family
from nodeloom.graph_import.handles import FileIdentity, Role
from nodeloom.graph_import.model import Model
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.models.checkpoint import Weights, build_module
from nodeloom.runtime.models.ldm_vae import rename_vae, vae_config
from nodeloom.runtime.models.tiny import TINY, TINY_INPAINT, vae_spec, write_tiny_sd15
from nodeloom.runtime.models.weight_spec import materialise
from nodeloom.runtime.values import Conditioning
from safetensors.torch import load_file

GOLDENS = Path(__file__).parents[2] / "goldens" / "models"
SAMPLING = family("sd15").model_sampling


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.safetensors"
    write_tiny_sd15(path)
    return path


@pytest.fixture(scope="module")
def denoiser(checkpoint: Path) -> Model:
    return load_model(checkpoint, Role.DENOISER)


@pytest.fixture(scope="module")
def text_encoder(checkpoint: Path) -> Model:
    return load_model(checkpoint, Role.TEXT_ENCODER)


@pytest.fixture(scope="module")
def vae(checkpoint: Path) -> Model:
    return load_model(checkpoint, Role.VAE)


def assert_close(tensor: torch.Tensor, reference: torch.Tensor, limit: float = 1e-4) -> None:
    assert tensor.shape == reference.shape
    assert tensor.dtype == torch.float32
    assert (tensor - reference).abs().max() <= limit * reference.std()


def denoised(result: object) -> torch.Tensor:
    assert isinstance(result, dict)
    tensor = result["denoised"]
    assert isinstance(tensor, torch.Tensor)
    return tensor


def conditioning(model: Model, *texts: str) -> list[Conditioning]:
    given = [one["conditioning"] for one in model.execute_batch([{"text": t} for t in texts])]
    assert all(isinstance(one, Conditioning) for one in given)
    return given  # type: ignore[return-value]  # checked above


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def call(x: torch.Tensor, sigma: float, context: torch.Tensor) -> dict[str, object]:
    return {"x": x, "sigma": sigma, "context": context}


def weights_of(tensors: dict[str, torch.Tensor]) -> Weights:
    file = FileIdentity(path="made here", size_bytes=0, mtime_ns=0)
    return Weights(file=file, prefix="", tensors=tensors)


def test_the_denoiser_gives_the_recorded_noise(denoiser: Model) -> None:
    golden = load_file(GOLDENS / "unet_sd15.safetensors")
    calls = []
    for x, timestep, context in zip(golden["x"], golden["t"], golden["context"], strict=True):
        sigma = SAMPLING.sigmas[int(timestep)]
        noisy = x[None] / SAMPLING.input_scale(sigma)
        calls.append(call(noisy, sigma, context[None]))
    results = denoiser.execute_batch(calls)
    for one, result, reference in zip(calls, results, golden["out"], strict=True):
        x, sigma = one["x"], one["sigma"]
        assert isinstance(x, torch.Tensor)
        assert isinstance(sigma, float)
        assert_close((x - denoised(result)) / sigma, reference[None])


def test_an_inpainting_denoiser_takes_more_channels(tmp_path: Path) -> None:
    golden = load_file(GOLDENS / "unet_sd15_inpaint.safetensors")
    write_tiny_sd15(tmp_path / "inpaint.safetensors", size=TINY_INPAINT)
    denoiser = load_model(tmp_path / "inpaint.safetensors", Role.DENOISER)
    sigma = SAMPLING.sigmas[int(golden["t"][0])]
    x, more = golden["x"][:1, :4] / SAMPLING.input_scale(sigma), golden["x"][:1, 4:]
    plain = call(x, sigma, golden["context"][:1])
    given = denoised(denoiser.execute(**plain, extra_channels=lambda: more))
    assert_close((x - given) / sigma, golden["out"][:1])
    for wrong in ({}, {"extra_channels": lambda: more[:, :4]}):
        with pytest.raises(NodeFailed, match="5 channels beside the latents"):
            denoiser.execute(**plain, **wrong)


def test_calls_of_any_shape_give_what_they_give_alone(denoiser: Model) -> None:
    calls = [
        call(noise(1, 4, 8, 8), 9.0, noise(1, 77, 64)),
        call(noise(2, 4, 8, 8), 0.3, noise(1, 154, 64)),
        call(noise(1, 4, 6, 10), 2.0, noise(1, 77, 64)),
        call(noise(2, 4, 8, 8), 14.6, noise(2, 77, 64)),
        call(noise(1, 4, 7, 9), 2.0, noise(1, 231, 64)),
        call(noise(1, 4, 8, 8), 1.0, noise(1, 77 * 31, 64)),
    ]
    together = denoiser.execute_batch(calls)
    for one, result in zip(calls, together, strict=True):
        assert_close(denoised(result), denoised(denoiser.execute(**one)))


@pytest.mark.parametrize(
    ("x", "context", "message"),
    [
        (noise(1, 4, 8, 8), noise(1, 77, 768), "another family"),
        (noise(3, 4, 8, 8), noise(2, 77, 64), "for 2 pictures, the latents for 3"),
        (noise(1, 16, 8, 8), noise(1, 77, 64), "16 channels, this model takes 4"),
        (noise(1, 4, 2, 8, 8), noise(1, 77, 64), "takes pictures, but the latents are"),
    ],
)
def test_inputs_that_do_not_fit_fail_the_node(
    denoiser: Model, x: torch.Tensor, context: torch.Tensor, message: str
) -> None:
    with pytest.raises(NodeFailed, match=message):
        denoiser.execute(x=x, sigma=1.0, context=context)


def test_the_autoencoder_gives_the_recorded_pictures_and_latents() -> None:
    from diffusers import AutoencoderKL

    golden = load_file(GOLDENS / "vae_sd.safetensors")
    made = materialise(vae_spec(TINY.vae), seed=0)
    weights = weights_of({name: torch.from_numpy(array) for name, array in made.items()})
    module = build_module(
        lambda: AutoencoderKL(**vae_config(weights)),
        weights,
        rename_vae(weights),
        dtype=torch.float32,
        device="cpu",
    )
    assert_close(module.decode(golden["z"]).sample, golden["out"])
    assert_close(module.encode(golden["pixels"]).latent_dist.mode(), golden["encoded"])


def test_texts_encode_together_as_they_do_alone(text_encoder: Model) -> None:
    texts = ("", "a fox", "a (red:1.3) fox", "word " * 200, "a fox")
    together = conditioning(text_encoder, *texts)
    for text, given in zip(texts, together, strict=True):
        (alone,) = conditioning(text_encoder, text)
        assert_close(given.entries[0].cond, alone.entries[0].cond)
        assert given.entries[0].pooled is not None
        assert alone.entries[0].pooled is not None
        assert_close(given.entries[0].pooled, alone.entries[0].pooled)
    assert [given.entries[0].cond.shape[1] for given in together] == [77, 77, 77, 231, 77]


def test_weights_move_their_tokens_alone(text_encoder: Model) -> None:
    plain, weighted = conditioning(text_encoder, "a red fox", "a (red:1.3) fox")
    difference = (plain.entries[0].cond - weighted.entries[0].cond).abs().amax(dim=-1)[0]
    assert difference.nonzero().flatten().tolist() == [2]
    assert plain.entries[0].pooled is not None
    assert weighted.entries[0].pooled is not None
    assert torch.equal(plain.entries[0].pooled, weighted.entries[0].pooled)


def test_a_batch_of_pictures_has_the_bits_of_each_alone(vae: Model) -> None:
    samples, pixels = noise(3, 4, 4, 6), noise(3, 32, 48, 3).sigmoid()
    images = image(vae.execute(samples=samples))
    latents = latent(vae.execute(pixels=pixels))
    assert images.shape == (3, 32, 48, 3)
    assert latents.shape == (3, 4, 4, 6)
    assert 0.0 <= images.min() < images.max() <= 1.0
    for index in range(3):
        alone = slice(index, index + 1)
        assert torch.equal(images[alone], image(vae.execute(samples=samples[alone])))
        assert torch.equal(latents[alone], latent(vae.execute(pixels=pixels[alone])))


def test_pictures_are_cropped_at_their_centre_and_lose_their_alpha(vae: Model) -> None:
    pixels = noise(1, 37, 51, 4).sigmoid()
    whole = latent(vae.execute(pixels=pixels))
    cropped = latent(vae.execute(pixels=pixels[:, 2:34, 1:49, :3]))
    assert torch.equal(whole, cropped)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"samples": noise(1, 16, 4, 4)}, "latents of 4 channels"),
        ({"pixels": noise(1, 16, 16, 1)}, "pictures of 3 channels"),
        ({"pixels": noise(1, 7, 16, 3)}, "7 pixels is too small"),
        ({}, "either latents or pictures"),
    ],
)
def test_a_vae_refuses_what_it_cannot_take(
    vae: Model, inputs: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(NodeFailed, match=message):
        vae.execute(**inputs)


def image(result: object) -> torch.Tensor:
    assert isinstance(result, dict)
    tensor = result["image"]
    assert isinstance(tensor, torch.Tensor)
    return tensor


def latent(result: object) -> torch.Tensor:
    assert isinstance(result, dict)
    tensor = result["latent"]
    assert isinstance(tensor, torch.Tensor)
    return tensor
