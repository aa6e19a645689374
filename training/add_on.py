"""What a ControlNet, a LoRA and a textual inversion have in common: the base model is frozen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .captions import caption
from .diffusion import noise_loss
from .pools import Pool
from .scenes import Scene
from .text import TextEncoder, Vocabulary
from .unet import DROPPED_SHARE

Predict = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(slots=True, frozen=True)
class Base:
    """The frozen denoiser and text encoder."""

    unet: Any
    text: TextEncoder
    vocabulary: Vocabulary


class AddOnStage(ABC):
    """Trains something small for a frozen base on a pool of scenes."""

    def __init__(self, pool: Pool, base: Base, *, seed: int, batch: int) -> None:
        torch.manual_seed(seed)
        self.pool = pool
        self.base = base
        self._seed = seed
        self._batch = batch

    @abstractmethod
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """What is trained."""

    @abstractmethod
    def predict(self, context: torch.Tensor, scenes: Sequence[Scene]) -> Predict:
        """The prediction of noise, from noisy latents and timesteps."""

    def context(self, scenes: Sequence[Scene], rng: np.random.Generator) -> torch.Tensor:
        """The scenes' captions, encoded; a share of them is left empty."""
        texts = [
            "" if rng.random() < DROPPED_SHARE else caption(scene, int(rng.integers(1 << 31)))
            for scene in scenes
        ]
        with torch.no_grad():
            return self.base.text(self.base.vocabulary.rows(texts, rng))

    def loss(self, step: int) -> torch.Tensor:
        """The loss of this step's batch."""
        rng = np.random.default_rng((self._seed, step))
        indices = [int(index) for index in rng.integers(len(self.pool), size=self._batch)]
        scenes = [self.pool.scene(index) for index in indices]
        predict = self.predict(self.context(scenes, rng), scenes)
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        return noise_loss(self.pool.latents[indices], predict, generator)
