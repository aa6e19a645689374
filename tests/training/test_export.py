"""Exported files: our loader reads them, and what it builds computes what was trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from kit.checkpoints import load_model, model_ref
from nodeloom.graph_import.families import family
from nodeloom.graph_import.handles import ModelKey, ModelRef, Role
from nodeloom.runtime.models.embedding_files import read_embedding
from nodeloom.runtime.models.headers import inspect_lora, inspect_part
from nodeloom.runtime.models.registry import build
from nodeloom.runtime.models.weight_files import identify

from training.add_on import Base
from training.controlnet import build_controlnet
from training.export import (
    export_checkpoint,
    export_controlnet,
    export_embedding,
    export_lora,
)
from training.lora import LoraStage, kohya_tensors
from training.pools import Pool, plain_scene
from training.rendering import render
from training.scenes import draw_scene
from training.text import SYNONYMS, TextEncoder, Vocabulary
from training.unet import build_unet
from training.vae import build_vae, to_tensor, whole_vae

SCALE = (torch.tensor([0.1, -0.2, 0.3, 0.0]), torch.tensor([1.5, 0.6, 0.5, 0.7]))
TEXT = "a red circle on a white background"


class Trained:
    """Modules as training has them, with weights that float16 holds exactly."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.vocabulary = Vocabulary()
        self.text, self.unet, self.vae = TextEncoder(self.vocabulary), build_unet(), build_vae()
        for module in (self.text, self.unet, self.vae):
            module.requires_grad_(False)
            for weight in module.parameters():
                weight.copy_(
                    torch.where(weight == 0, 0.02 * torch.randn_like(weight), weight).half()
                )
        self.text.module.embeddings.token_embedding.weight[0] = 0.0


@pytest.fixture(scope="module")
def trained() -> Trained:
    return Trained()


@pytest.fixture(scope="module")
def checkpoint(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.safetensors"
    export_checkpoint(
        path,
        unet=trained.unet.state_dict(),
        text=trained.text.module.state_dict(),
        vocabulary=trained.vocabulary,
        vae=whole_vae(trained.vae.state_dict()).state_dict(),
        scale=SCALE,
    )
    return path


def test_the_text_encoder_gives_what_was_trained(trained: Trained, checkpoint: Path) -> None:
    encoder = load_model(checkpoint, Role.TEXT_ENCODER)
    for text in (TEXT, "", "two blue crosses, night sky"):
        found = encoder.execute(text=text)["conditioning"].entries[0].cond  # type: ignore[attr-defined]  # a Conditioning
        torch.testing.assert_close(found, trained.text(trained.vocabulary.rows([text])))


def test_synonyms_mean_the_same(checkpoint: Path) -> None:
    encoder = load_model(checkpoint, Role.TEXT_ENCODER)
    for word, known in SYNONYMS.items():
        found, wanted = (
            encoder.execute(text=f"a {text}")["conditioning"].entries[0].cond  # type: ignore[attr-defined]  # a Conditioning
            for text in (word, known)
        )
        assert torch.equal(found, wanted)


def test_the_denoiser_gives_what_was_trained(trained: Trained, checkpoint: Path) -> None:
    denoiser = load_model(checkpoint, Role.DENOISER)
    sampling = family("sd15").model_sampling
    sigma = sampling.sigmas[500]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, 4, 16, 16, generator=generator) * sigma
    context = trained.text(trained.vocabulary.rows([TEXT]))
    found = denoiser.execute(x=x, sigma=sigma, context=context)["denoised"]
    noise = trained.unet(
        x * sampling.input_scale(sigma), torch.tensor([500]), encoder_hidden_states=context
    ).sample
    torch.testing.assert_close(found, x - sigma * noise, rtol=1e-4, atol=1e-4)


def test_the_vae_decodes_what_was_trained_on_its_own_scale(
    trained: Trained, checkpoint: Path
) -> None:
    vae = load_model(checkpoint, Role.VAE)
    pixels = np.stack([render(draw_scene(seed)) for seed in range(2)])
    raw = trained.vae.encode(to_tensor(pixels)).latent_dist.mean
    centre, spread = (part.reshape(1, -1, 1, 1) for part in SCALE)
    found = vae.execute(pixels=torch.from_numpy(pixels).float() / 255.0)["latent"]
    assert isinstance(found, torch.Tensor)
    scaled = found * family("sd15").scale_factor
    torch.testing.assert_close(scaled, (raw - centre) / spread, rtol=0.01, atol=0.02)
    image = vae.execute(samples=found)["image"]
    wanted = trained.vae.decode(raw).sample.add(1.0).div(2.0).clamp(0.0, 1.0)
    torch.testing.assert_close(image, wanted.permute(0, 2, 3, 1), rtol=0.01, atol=0.02)


def test_the_controlnet_is_read_and_adds_residuals(trained: Trained, tmp_path: Path) -> None:
    controlnet = build_controlnet(trained.unet).requires_grad_(False)
    for weight in controlnet.parameters():
        weight.copy_(torch.where(weight == 0, 0.02 * torch.randn_like(weight), weight).half())
    path = tmp_path / "contours.safetensors"
    export_controlnet(path, controlnet.state_dict())
    info = inspect_part(path)
    assert info.roles == {Role.CONTROLNET}
    key = ModelKey(role=Role.CONTROLNET, family=info.family, file=info.file, dtype=info.dtype)
    loaded = build(ModelRef(key=key))
    loaded.load("cpu")
    generator = torch.Generator().manual_seed(2)
    x, hint = (
        torch.rand(shape, generator=generator) for shape in ((1, 4, 16, 16), (1, 3, 128, 128))
    )
    context = trained.text(trained.vocabulary.rows([TEXT]))
    sampling = family("sd15").model_sampling
    sigma = sampling.sigmas[300]
    found = loaded.execute(x=x, sigma=sigma, context=context, hint=hint)["residuals"]
    _, middle = controlnet(
        x * sampling.input_scale(sigma),
        torch.tensor([300]),
        encoder_hidden_states=context,
        controlnet_cond=hint,
        return_dict=False,
    )
    torch.testing.assert_close(found.blocks[-1], middle, rtol=1e-4, atol=1e-4)  # type: ignore[attr-defined]  # CallResiduals


def test_a_lora_names_modules_of_the_denoiser(
    trained: Trained, checkpoint: Path, tmp_path: Path
) -> None:
    pool = Pool(torch.zeros(4, 4, 16, 16), plain_scene, SCALE)
    stage = LoraStage(pool, Base(trained.unet, trained.text, trained.vocabulary), seed=0, batch=1)
    path = tmp_path / "style.safetensors"
    export_lora(path, kohya_tensors(stage.parameters()))
    assert inspect_lora(path).path == str(path)
    denoiser = load_model(checkpoint, Role.DENOISER)
    spellings = denoiser.patch_target().modules  # type: ignore[attr-defined]  # a Denoiser has it
    from nodeloom.runtime.models.lora_file import read_lora

    lora = read_lora(identify(path))
    assert not lora.unknown
    assert {module.path for module in lora.modules} <= set(spellings)
    assert len(lora.modules) > 20


def test_an_embedding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "turquoise.safetensors"
    export_embedding(path, torch.full((1, 64), 0.5))
    assert torch.equal(read_embedding(identify(path), "clip_l", 64), torch.full((1, 64), 0.5))


def test_a_weight_without_a_name_in_the_layout_is_refused(trained: Trained, tmp_path: Path) -> None:
    weights = {**trained.unet.state_dict(), "extra.weight": torch.zeros(1)}
    with pytest.raises(ValueError, match=r"extra\.weight"):
        export_checkpoint(
            tmp_path / "never.safetensors",
            unet=weights,
            text=trained.text.module.state_dict(),
            vocabulary=trained.vocabulary,
            vae=whole_vae(trained.vae.state_dict()).state_dict(),
            scale=SCALE,
        )


def test_the_checkpoint_has_all_three_parts(checkpoint: Path) -> None:
    assert model_ref(checkpoint, Role.DENOISER).key.family == "sd15"
