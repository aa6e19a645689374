"""A textual inversion: the vector that stands for a colour which no caption names.

Source: arXiv 2208.01618. Everything but the vector is frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from .add_on import AddOnStage, Base, Predict
from .captions import phrase
from .pools import FIRST_SEED, Pool
from .scenes import BACKGROUNDS, SHAPES, UNNAMED, Scene, single
from .text import TOKEN_STD, WIDTH

STAND_IN: Final = "red"  # the word in whose place the vector is put
NAME: Final = "emb_params"


def unnamed_scene(index: int) -> Scene:
    """A single thing of the colour without a name."""
    rng = np.random.default_rng((FIRST_SEED + index, 5))
    shape, background = (words[int(rng.integers(len(words)))] for words in (SHAPES, BACKGROUNDS))
    return single(shape, UNNAMED, background, seed=FIRST_SEED + index)


class InversionStage(AddOnStage):
    """Trains one vector [1, 64]."""

    def __init__(self, pool: Pool, base: Base, *, seed: int, batch: int) -> None:
        super().__init__(pool, base, seed=seed, batch=batch)
        self.vector = torch.nn.Parameter(torch.randn(1, WIDTH) * 0.25 * TOKEN_STD)
        self._stand_in = int(base.vocabulary.rows([STAND_IN])[0, 1])

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return {NAME: self.vector}

    def context(self, scenes: Sequence[Scene], rng: np.random.Generator) -> torch.Tensor:
        """The plainest captions, with the vector in the place of the colour's word."""
        rows = self.base.vocabulary.rows(
            phrase(scene.things[0].shape, STAND_IN, scene.background) for scene in scenes
        )
        embedded = self.base.text.module.embeddings.token_embedding(rows)
        is_stand_in = (rows == self._stand_in)[..., None]
        return self.base.text.encode(torch.where(is_stand_in, self.vector, embedded))

    def predict(self, context: torch.Tensor, scenes: Sequence[Scene]) -> Predict:
        def predict(noisy: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
            unet = self.base.unet
            noise: torch.Tensor = unet(noisy, timesteps, encoder_hidden_states=context).sample
            return noise

        return predict
