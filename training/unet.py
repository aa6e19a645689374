"""The denoiser and the text encoder, trained together on cached latents."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from .captions import caption, with_wrong_colours
from .diffusion import noise_loss
from .pools import Pool
from .scenes import Scene
from .text import WIDTH, TextEncoder, Vocabulary

WIDTHS: Final = (96, 128)
CONFIG: Final[dict[str, Any]] = {
    "in_channels": 4,
    "out_channels": 4,
    "block_out_channels": WIDTHS,
    "layers_per_block": 1,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "transformer_layers_per_block": (1, 1),
    "cross_attention_dim": WIDTH,
    "attention_head_dim": 8,  # the number of heads, in spite of its name
}
DROPPED_SHARE: Final = 0.1  # of captions that are left empty, which guidance needs


def build_unet() -> Any:
    """The UNet; its residual blocks start as their shortcuts."""
    from diffusers import UNet2DConditionModel

    unet_class: Any = UNet2DConditionModel
    unet = unet_class(**CONFIG)
    with torch.no_grad():
        for name, module in unet.named_modules():
            if name.endswith((".conv2", ".proj_out")) or name == "conv_out":
                module.weight.zero_()
                module.bias.zero_()
    return unet


class UnetStage:
    """Trains the prediction of noise, given captions.

    Args:
        wrong_share: of captions that name wrong colours, as captions of collected pictures do: it
            is guidance that then makes the colours certain.
        rank, num_ranks: which process of several that train together this is.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        seed: int,
        batch: int,
        wrong_share: float = 0.0,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        torch.manual_seed(seed)
        self.vocabulary = Vocabulary()
        self.text = TextEncoder(self.vocabulary)
        self.unet = build_unet()
        self._pool = pool
        self._seed = seed
        self._batch = batch
        self._wrong_share = wrong_share
        self._rank = rank
        self._num_ranks = num_ranks

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return {
            **{f"text.{name}": weight for name, weight in self.text.named_parameters()},
            **{f"unet.{name}": weight for name, weight in self.unet.named_parameters()},
        }

    def loss(self, step: int) -> torch.Tensor:
        number = step * self._num_ranks + self._rank
        rng = np.random.default_rng((self._seed, number))
        indices = rng.integers(len(self._pool), size=self._batch)
        texts = [self._caption(self._pool.scene(int(index)), rng) for index in indices]
        context = self.text(self.vocabulary.rows(texts, rng))

        def predict(noisy: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
            noise: torch.Tensor = self.unet(noisy, timesteps, encoder_hidden_states=context).sample
            return noise

        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + number)
        return noise_loss(self._pool.latents[torch.from_numpy(indices)], predict, generator)

    def _caption(self, scene: Scene, rng: np.random.Generator) -> str:
        if rng.random() < DROPPED_SHARE:
            return ""
        if self._wrong_share and rng.random() < self._wrong_share:
            scene = with_wrong_colours(scene, _salt(rng))
        return caption(scene, _salt(rng))


def _salt(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 31))
