"""LoRAs of the UNet: two small factors beside each matrix and kernel, trained on one style.

Source: LoRA (arXiv 2106.09685); for kernels, as LoCon (arXiv 2309.14859) has it, the first factor
is a convolution and the second a 1 by 1 one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch.func import functional_call

from .add_on import AddOnStage, Base, Predict
from .pools import Pool
from .scenes import Scene

RANK: Final = 4
UP: Final = "lora_up"
DOWN: Final = "lora_down"
# The residual blocks' kernels and the transformers' matrices.
TARGETS: Final = re.compile(
    r"resnets\.\d\.conv[12]\.weight$|\.(to_q|to_k|to_v|to_out\.0|proj|net\.2)\.weight$"
)


class LoraStage(AddOnStage):
    """Trains the factors on a pool of one style."""

    def __init__(self, pool: Pool, base: Base, *, seed: int, batch: int) -> None:
        super().__init__(pool, base, seed=seed, batch=batch)
        self._targets = {n: w for n, w in base.unet.named_parameters() if TARGETS.search(n)}
        self._factors: dict[str, torch.nn.Parameter] = {}
        for name, weight in self._targets.items():
            path = name.removesuffix(".weight")
            inner = math.prod(weight.shape[1:])
            down = torch.randn(RANK, *weight.shape[1:]) / math.sqrt(inner)
            up = torch.zeros(len(weight), RANK, *(1 for _ in weight.shape[2:]))
            self._factors[f"{path}.{DOWN}"] = torch.nn.Parameter(down)
            self._factors[f"{path}.{UP}"] = torch.nn.Parameter(up)

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return self._factors

    def predict(self, context: torch.Tensor, scenes: Sequence[Scene]) -> Predict:
        weights = patched(self._targets, self._factors)

        def predict(noisy: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
            arguments = {"encoder_hidden_states": context, "return_dict": False}
            noise: torch.Tensor = functional_call(
                self.base.unet, weights, (noisy, timesteps), arguments
            )[0]
            return noise

        return predict


def patched(
    targets: Mapping[str, torch.Tensor], factors: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The targets' weights with up @ down added: a strength of 1, and alpha is the rank."""
    weights = {}
    for name, weight in targets.items():
        path = name.removesuffix(".weight")
        up, down = factors[f"{path}.{UP}"], factors[f"{path}.{DOWN}"]
        weights[name] = weight + (up.flatten(1) @ down.flatten(1)).reshape(weight.shape)
    return weights


def kohya_tensors(factors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The factors under the names of kohya's scripts."""
    tensors = {}
    for name, factor in factors.items():
        path, _, slot = name.rpartition(".")
        stem = "lora_unet_" + path.replace(".", "_")
        tensors[f"{stem}.{slot}.weight"] = factor
        tensors[f"{stem}.alpha"] = torch.tensor(float(RANK))
    return tensors
