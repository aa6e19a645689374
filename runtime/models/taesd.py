"""TAESD's decoder: denoised latents to a picture in some forty small convolutions, for previews.

Its file names every weight by its layer's place in one sequence: 0 clamps, 1 is a convolution, 2 a
ReLU, then come stages of blocks. Each stage but the last doubles the sides and ends with a
convolution without bias; the last one ends with a convolution to red, green and blue.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import torch

from ...graph_import.handles import FileIdentity
from ..values import LATENT_PIXELS
from .checkpoint import Weights, build_module, read_weights
from .weight_files import problem, read_header

MAX_FILE_BYTES: Final = 64 * 2**20  # real ones have 5 MB; the budget of models does not count them
NUM_COLOURS: Final = 3
NUM_STAGES: Final = LATENT_PIXELS.bit_length()  # all but the last double the sides
_NAME: Final = re.compile(r"(\d{1,3})\.((?:conv\.\d{1,3}\.)?(?:weight|bias))")


class TinyDecoder:
    """A loaded decoder, float32.

    Args:
        module: diffusers' `DecoderTiny`, which has no types.
        latent_channels: what it decodes.
    """

    def __init__(self, module: Any, latent_channels: int, device: str) -> None:
        self._module = module
        self._device = device
        self.latent_channels = latent_channels

    @classmethod
    def load(cls, file: FileIdentity, device: str) -> TinyDecoder:
        """Read a decoder.

        Raises: ModelFileProblem: the file changed, is damaged or large, needs unpickling, or holds
        anything but one decoder of `LATENT_PIXELS` pixels a latent.
        """
        from diffusers.models.autoencoders.vae import DecoderTiny

        decoder_class: Any = DecoderTiny
        if file.size_bytes > MAX_FILE_BYTES:
            raise problem(file.path, f"it has more than {MAX_FILE_BYTES} bytes")
        read_header(Path(file.path))  # names what is wrong with a file, and never unpickles
        weights = read_weights(file, ("",))
        config = decoder_config(weights)
        module = build_module(
            lambda: decoder_class(**config),
            weights,
            rename_decoder(weights),
            dtype=torch.float32,
            device=device,
        )
        return cls(module, config["in_channels"], device)

    @torch.inference_mode()
    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Latents [B, C, h, w] in the denoiser's space to pictures [B, 8h, 8w, 3], 0 to 1."""
        decoded: torch.Tensor = self._module(latents.to(self._device, torch.float32))
        pixels = decoded.to("cpu").add(1.0).div(2.0).nan_to_num(0.0).clamp(0.0, 1.0)
        return pixels.permute(0, 2, 3, 1).contiguous()


def decoder_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `DecoderTiny`, from names and shapes.

    Raises: ModelFileProblem: a name, the number of stages or that of the colours is another's.
    """
    path = weights.file.path
    convs: set[int] = set()
    blocks: set[int] = set()
    for name in weights:
        place, rest = split_name(weights, name)
        (blocks if rest.startswith("conv.") else convs).add(place)
    num_blocks = tuple(
        sum(start < place < end for place in blocks) for start, end in pairwise(sorted(convs))
    )
    if len(num_blocks) != NUM_STAGES:
        raise problem(path, f"it has {len(num_blocks)} stages instead of {NUM_STAGES}")
    width, latent_channels = weights.shape("1.weight", 4)[:2]
    num_colours = weights.shape(f"{max(convs)}.weight", 4)[0]
    if num_colours != NUM_COLOURS:
        raise problem(path, f"it decodes to {num_colours} colours instead of {NUM_COLOURS}")
    return {
        "in_channels": latent_channels,
        "out_channels": NUM_COLOURS,
        "num_blocks": num_blocks,
        "block_out_channels": (width,) * NUM_STAGES,
        "upsampling_scaling_factor": 2,
        "act_fn": "relu",
        "upsample_fn": "nearest",
    }


def rename_decoder(weights: Weights) -> dict[str, torch.Tensor]:
    """The tensors under diffusers' names, whose sequence is without the clamp.

    Raises: ModelFileProblem: as `split_name`.
    """
    renamed: dict[str, torch.Tensor] = {}
    for name, tensor in weights.tensors.items():
        place, rest = split_name(weights, name)
        renamed[f"layers.{place - 1}.{rest}"] = tensor
    return renamed


def split_name(weights: Weights, name: str) -> tuple[int, str]:
    """A layer's place and the weight's name in it. Raises: ModelFileProblem: no such name."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise problem(weights.file.path, f"a TAESD decoder has no weight {name[:80]!r}")
    return int(match[1]), match[2]
