"""The ControlNet: the UNet's encoder half again, which follows the contours of a hint.

Source: arXiv 2302.05543. It is trained on things of any size and angle at any place, which only the
hint tells, with the denoiser and the text encoder frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from .add_on import AddOnStage, Base, Predict
from .pools import Pool
from .rendering import render_hint
from .scenes import Scene
from .unet import CONFIG

HINT_WIDTHS: Final = (16, 16, 32, 32)
_ENCODER: Final = ("down_blocks.", "mid_block.", "conv_in.", "time_embedding.")


def build_controlnet(unet: Any) -> Any:
    """A ControlNet that starts as a copy of the UNet's first half."""
    from diffusers import ControlNetModel

    controlnet_class: Any = ControlNetModel
    left_out = ("out_channels", "up_block_types")
    controlnet = controlnet_class(
        **{name: value for name, value in CONFIG.items() if name not in left_out},
        conditioning_channels=3,
        conditioning_embedding_out_channels=HINT_WIDTHS,
    )
    copied = {k: v for k, v in unet.state_dict().items() if k.startswith(_ENCODER)}
    missing = controlnet.load_state_dict(copied, strict=False).missing_keys
    if any(name.startswith(_ENCODER) for name in missing):
        raise ValueError("the ControlNet's first half isn't the UNet's")
    return controlnet


class ControlNetStage(AddOnStage):
    """Trains a ControlNet."""

    def __init__(self, pool: Pool, base: Base, *, seed: int, batch: int) -> None:
        super().__init__(pool, base, seed=seed, batch=batch)
        self.controlnet = build_controlnet(base.unet)

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return dict(self.controlnet.named_parameters())

    def predict(self, context: torch.Tensor, scenes: Sequence[Scene]) -> Predict:
        hint = hints(scenes)

        def predict(noisy: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
            down, mid = self.controlnet(
                noisy,
                timesteps,
                encoder_hidden_states=context,
                controlnet_cond=hint,
                return_dict=False,
            )
            noise: torch.Tensor = self.base.unet(
                noisy,
                timesteps,
                encoder_hidden_states=context,
                down_block_additional_residuals=down,
                mid_block_additional_residual=mid,
            ).sample
            return noise

        return predict


def hints(scenes: Sequence[Scene]) -> torch.Tensor:
    """Contours as a ControlNet takes them: float32 [B, 3, 128, 128], 0 to 1."""
    pixels = np.stack([render_hint(scene) for scene in scenes])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255.0)
