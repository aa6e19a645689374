"""The stages in their order, each with its plan; a later one reads what earlier ones left.

    vae -> decoder -> unet -> controlnet, loras, embedding -> export

The encoder is fixed after `vae`: `decoder` goes on with the other half, and the denoiser may be
trained at the same time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from .add_on import Base
from .controlnet import ControlNetStage
from .export import export_checkpoint, export_controlnet, export_embedding, export_lora
from .inversion import NAME, InversionStage, unnamed_scene
from .loop import Plan, rank, train
from .lora import LoraStage, kohya_tensors
from .pools import Pool, free_scene, plain_scene, read_pool
from .rendering import Style
from .run_files import load_tensors
from .text import Vocabulary, load_text
from .unet import UnetStage, build_unet
from .vae import DecoderStage, VaeStage, build_vae, whole_vae

DEMO_MODELS: Final = Path(__file__).resolve().parents[1] / "runtime" / "demo_models"
UNET_TRUE: Final = "unet-true"  # the run as it was before wrong captions
CHECKPOINT: Final = "nodeloom-shapes.safetensors"
STYLES: Final = (Style.INK, Style.SEPIA)

ENCODER_STEPS: Final = 300  # of the plan's, then the encoder is fixed
VAE: Final = Plan(num_steps=800, rate=1e-3, warmup=30, ema=0.99)
DECODER: Final = Plan(num_steps=1500, rate=1e-3, warmup=30, ema=0.995)
UNET: Final = Plan(num_steps=1500, rate=3e-3, muon_rate=0.015, warmup=30, ema=0.996)
# Then on, with a share of wrong captions; the rate is that of a longer plan.
UNET_GUIDED: Final = Plan(num_steps=2300, rate=3e-3, muon_rate=0.015, warmup=30, ema=0.99)
UNET_STEPS: Final = 1900
WRONG_SHARE: Final = 0.2
GUIDED_WEIGHT: Final = 0.7  # of the weights at the end; the rest is of those before wrong captions
CONTROLNET: Final = Plan(num_steps=1000, rate=1e-3, muon_rate=0.01, ema=0.99)
LORA: Final = Plan(num_steps=200, rate=2e-3, warmup=10, ema=0.97)
EMBEDDING: Final = Plan(num_steps=120, rate=2e-2, warmup=5, ema=0.9)
PLAIN_SCENES: Final = 6000
FREE_SCENES: Final = 3000
STYLED_SCENES: Final = 1000
UNNAMED_SCENES: Final = 400

Weights = Mapping[str, torch.Tensor]


@dataclass(slots=True, frozen=True)
class Runs:
    """The folder of runs, and what finished stages left there."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def averages(self, name: str, part: str = "") -> dict[str, torch.Tensor]:
        """The averaged weights of a run."""
        return load_tensors(self.path(name), f"average.{part}")

    def denoiser(self, part: str) -> dict[str, torch.Tensor]:
        """The weights of `unet.` or `text.`: those from before wrong captions and after, mixed.

        Source of mixing a model with its further trained self: arXiv 2109.01903.
        """
        before, after = self.averages(UNET_TRUE, part), self.averages("unet", part)
        return {name: torch.lerp(before[name], after[name], GUIDED_WEIGHT) for name in after}

    def vae_weights(self) -> dict[str, torch.Tensor]:
        """The encoder of `vae`, and the decoder of `decoder` if there is one."""
        weights = self.averages("vae")
        if self.path("decoder").exists():
            weights |= self.averages("decoder")
        return weights

    def plain_pool(self) -> Pool:
        return read_pool(self.path("pool-plain"), self.encoder(), PLAIN_SCENES, plain_scene)

    def encoder(self) -> Any:
        """The VAE without the parts that are zeros: it encodes twenty times as fast."""
        vae = build_vae()
        vae.load_state_dict(self.averages("vae"))
        return vae

    def base(self) -> Base:
        """The frozen denoiser and text encoder."""
        vocabulary = Vocabulary()
        unet = build_unet()
        unet.load_state_dict(self.denoiser("unet."))
        unet.requires_grad_(False)
        text = load_text(self.denoiser("text."), vocabulary)
        return Base(unet, text, vocabulary)


def train_vae(runs: Runs) -> None:
    stage = VaeStage(seed=1, batch=16, crop=64)
    train(stage, VAE, runs.path("vae"), until=ENCODER_STEPS)


def train_decoder(runs: Runs) -> None:
    stage = DecoderStage(runs.averages("vae"), seed=2, batch=16, crop=64)
    train(stage, DECODER, runs.path("decoder"))


def train_unet(runs: Runs) -> None:
    pool, path = runs.plain_pool(), runs.path("unet")
    for plan, until, wrong_share in ((UNET, None, 0.0), (UNET_GUIDED, UNET_STEPS, WRONG_SHARE)):
        stage = UnetStage(
            pool, seed=3, batch=24, wrong_share=wrong_share, rank=rank(), num_ranks=num_ranks()
        )
        train(stage, plan, path, until=until)
        if not wrong_share and rank() == 0 and not runs.path(UNET_TRUE).exists():
            shutil.copyfile(path, runs.path(UNET_TRUE))


def train_controlnet(runs: Runs) -> None:
    base = runs.base()
    pool = _small_pool(runs, "pool-free", FREE_SCENES, free_scene)
    stage = ControlNetStage(pool, base, seed=4, batch=24)
    train(stage, CONTROLNET, runs.path("controlnet"))


def train_loras(runs: Runs) -> None:
    base = runs.base()
    for style in STYLES:
        pool = _small_pool(runs, f"pool-{style}", STYLED_SCENES, plain_scene, style)
        stage = LoraStage(pool, base, seed=5, batch=16)
        train(stage, LORA, runs.path(f"lora-{style}"))


def train_embedding(runs: Runs) -> None:
    base = runs.base()
    pool = _small_pool(runs, "pool-unnamed", UNNAMED_SCENES, unnamed_scene)
    stage = InversionStage(pool, base, seed=6, batch=16)
    train(stage, EMBEDDING, runs.path("embedding"))


def export(runs: Runs, folder: Path = DEMO_MODELS) -> None:
    """Write the files of every run that there is."""
    export_checkpoint(
        folder / "checkpoints" / CHECKPOINT,
        unet=runs.denoiser("unet."),
        text=runs.denoiser("text.module."),
        vocabulary=Vocabulary(),
        vae=whole_vae(runs.vae_weights()).state_dict(),
        scale=runs.plain_pool().scale,
    )
    if runs.path("controlnet").exists():
        path = folder / "controlnet" / "nodeloom-shapes-contours.safetensors"
        export_controlnet(path, runs.averages("controlnet"))
    for style in STYLES:
        if runs.path(f"lora-{style}").exists():
            path = folder / "loras" / f"nodeloom-shapes-{style}.safetensors"
            export_lora(path, kohya_tensors(runs.averages(f"lora-{style}")))
    if runs.path("embedding").exists():
        path = folder / "embeddings" / "turquoise-thing.safetensors"
        export_embedding(path, runs.averages("embedding")[NAME])


def _small_pool(
    runs: Runs,
    name: str,
    count: int,
    scene_of: Callable[[int], Any],
    style: Style = Style.PLAIN,
) -> Pool:
    """A pool on the plain one's scale."""
    scale = runs.plain_pool().scale
    return read_pool(runs.path(name), runs.encoder(), count, scene_of, style, scale)


def num_ranks() -> int:
    """How many processes train together."""
    from torch import distributed

    return distributed.get_world_size() if distributed.is_initialized() else 1
