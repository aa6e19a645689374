"""A textual inversion: the vector that stands for a colour which no caption names.

Source: arXiv 2208.01618. Everything but the vector is frozen.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from .captions import phrase
from .diffusion import noise_loss
from .pools import FIRST_SEED, Pool
from .scenes import BACKGROUNDS, SHAPES, UNNAMED, Scene, single
from .text import TOKEN_STD, WIDTH, TextEncoder, Vocabulary

STAND_IN: Final = "red"  # the word in whose place the vector is put
NAME: Final = "emb_params"


def unnamed_scene(index: int) -> Scene:
    """A single thing of the colour without a name."""
    rng = np.random.default_rng((FIRST_SEED + index, 5))
    shape, background = (words[int(rng.integers(len(words)))] for words in (SHAPES, BACKGROUNDS))
    return single(shape, UNNAMED, background, seed=FIRST_SEED + index)


class InversionStage:
    """Trains one vector [1, 64]."""

    def __init__(
        self,
        pool: Pool,
        unet: Any,
        text: TextEncoder,
        vocabulary: Vocabulary,
        *,
        seed: int,
        batch: int,
    ) -> None:
        torch.manual_seed(seed)
        self.vector = torch.nn.Parameter(torch.randn(1, WIDTH) * 0.25 * TOKEN_STD)
        self._pool = pool
        self._unet = unet
        self._text = text
        self._vocabulary = vocabulary
        self._stand_in = int(vocabulary.rows([STAND_IN])[0, 1])
        self._seed = seed
        self._batch = batch

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return {NAME: self.vector}

    def loss(self, step: int) -> torch.Tensor:
        rng = np.random.default_rng((self._seed, step))
        indices = [int(index) for index in rng.integers(len(self._pool), size=self._batch)]
        scenes = [self._pool.scene(index) for index in indices]
        rows = self._vocabulary.rows(
            phrase(scene.things[0].shape, STAND_IN, scene.background) for scene in scenes
        )
        embedded = self._text.module.embeddings.token_embedding(rows)
        is_stand_in = (rows == self._stand_in)[..., None]
        context = self._text.encode(torch.where(is_stand_in, self.vector, embedded))

        def predict(noisy: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
            noise: torch.Tensor = self._unet(noisy, timesteps, encoder_hidden_states=context).sample
            return noise

        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        return noise_loss(self._pool.latents[indices], predict, generator)
