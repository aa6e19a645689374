"""TAESD decoder files with random weights, under the names of the real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from nodeloom.runtime.models.weight_spec import Spec, materialise
from safetensors.numpy import save_file

NUM_BLOCKS: Final = (3, 3, 3, 1)  # of the real ones, whose width is 64
DECODER_FILE: Final = "taesd_decoder.safetensors"


def write_decoder(path: Path, *, seed: int = 0, width: int = 8, latent_channels: int = 4) -> Path:
    """Write a decoder, float16."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(materialise(decoder_spec(width, latent_channels), seed), path)
    return path


def decoder_spec(
    width: int, latent_channels: int = 4, num_blocks: tuple[int, ...] = NUM_BLOCKS
) -> Spec:
    """A weight's name begins with its layer's place; places without weights are counted too."""
    spec = Spec()
    spec.conv("1", latent_channels, width)
    place = 3  # 0 clamps, 2 is a ReLU
    for stage, count in enumerate(num_blocks):
        for _ in range(count):
            for part in (0, 2, 4):
                spec.conv(f"{place}.conv.{part}", width, width, gain=0.5 if part == 4 else 1.4)
            place += 1
        if stage < len(num_blocks) - 1:
            place += 1  # doubles the sides
            spec.weight(f"{place}.weight", width, width, 3, 3)
        else:
            spec.conv(f"{place}", width, 3, gain=2.0)
            spec[f"{place}.bias"] = ((3,), 0.5, 0.2)  # so that few colours are clamped
        place += 1
    return spec
