"""Small SD1.5 ControlNets with random weights, in the cldm layout; beside `tiny.py`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

from .headers import CONTROLNET_PREFIX
from .tiny import TINY, UnetSize, unet_spec, write_spec
from .weight_spec import Spec

# Channels of the hint's convolutions before the last; every second one halves the picture.
HINT_WIDTHS: Final = (3, 16, 16, 32, 32, 96, 96, 256)
_DECODER: Final = ("output_blocks.", "out.")


def write_tiny_controlnet(path: Path, *, seed: int = 0, size: UnetSize = TINY.unet) -> None:
    """Write a ControlNet for a denoiser of this size to `path`, whole or not at all."""
    spec = Spec()
    spec.update({CONTROLNET_PREFIX + name: entry for name, entry in controlnet_spec(size).items()})
    write_spec(path, spec, seed)


def controlnet_spec(size: UnetSize) -> Spec:
    """The UNet's encoder half, the hint's convolutions and the ways out, without its prefix."""
    spec = Spec()
    spec.update({k: v for k, v in unet_spec(size).items() if not k.startswith(_DECODER)})
    widths = [*HINT_WIDTHS, size.width]
    for index, (inner, outer) in enumerate(pairwise(widths)):
        spec.conv(f"input_hint_block.{2 * index}", inner, outer)
    for index, width in enumerate(_skips(size)):
        spec.conv(f"zero_convs.{index}.0", width, width, kernel=1, gain=0.3)
    middle = size.multiples[-1] * size.width
    spec.conv("middle_block_out.0", middle, middle, kernel=1, gain=0.3)
    return spec


def _skips(size: UnetSize) -> list[int]:
    """Widths of what the decoder half reads of the encoder half."""
    skips, last = [size.width], len(size.multiples) - 1
    for level, multiple in enumerate(size.multiples):
        num_tensors = size.num_resnets + (level != last)
        skips += [multiple * size.width] * num_tensors
    return skips
