"""Latents of many drawn scenes, encoded once and read by every later stage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from .loop import wait_while_paused
from .rendering import Style, render
from .run_files import load_tensors, save_tensors
from .scenes import Scene, draw_scene
from .vae import encode

BATCH: Final = 32
FIRST_SEED: Final = 1_000_000  # scenes of lower seeds are for trying the model

Scale = tuple[torch.Tensor, torch.Tensor]  # mean and deviation of each channel

log = logging.getLogger(__name__)


class Pool:
    """Latents [N, 4, 16, 16] of N scenes, scaled so that each channel has mean 0 and deviation 1.

    Args:
        centre, spread: [4], of the unscaled latents of the plain pool, which fix the scale of all.
    """

    def __init__(
        self, latents: torch.Tensor, scene_of: Callable[[int], Scene], scale: Scale
    ) -> None:
        self.scale = scale
        centre, spread = (part.reshape(1, -1, 1, 1) for part in scale)
        self.latents = (latents.float() - centre) / spread
        self._scene_of = scene_of

    def scene(self, index: int) -> Scene:
        return self._scene_of(index)

    def __len__(self) -> int:
        return len(self.latents)


def plain_scene(index: int) -> Scene:
    return draw_scene(FIRST_SEED + index)


def free_scene(index: int) -> Scene:
    return draw_scene(FIRST_SEED + index, anywhere=True)


def read_pool(
    path: Path,
    vae: Any,
    count: int,
    scene_of: Callable[[int], Scene],
    style: Style = Style.PLAIN,
    scale: Scale | None = None,
) -> Pool:
    """The pool in a file, which is made if it isn't there or has fewer scenes."""
    latents = load_tensors(path)["latents"] if path.exists() else torch.zeros(0)
    if len(latents) < count:
        log.info("encoding %d scenes into %s", count, path.name)
        latents = encode(vae, _batches(count, scene_of, style)).half()
        save_tensors(path, {"latents": latents}, {})
    latents = latents[:count]
    return Pool(latents, scene_of, scale or latent_scale(latents))


def latent_scale(latents: torch.Tensor) -> Scale:
    """Mean and deviation of each channel."""
    channels = latents.float().transpose(0, 1).flatten(1)
    return channels.mean(dim=1), channels.std(dim=1)


def _batches(
    count: int, scene_of: Callable[[int], Scene], style: Style
) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    for start in range(0, count, BATCH):
        wait_while_paused()
        indices = range(start, min(count, start + BATCH))
        yield np.stack([render(scene_of(index), style) for index in indices])
