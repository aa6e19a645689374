"""Files that our loader reads like any others, from the averaged weights of runs.

They are float16, in the original layouts: the loader's own tables of names are read backwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import torch
from nodeloom.runtime.models.embedding_files import PLAIN_NAME
from nodeloom.runtime.models.headers import (
    CONTROLNET_PREFIX,
    DENOISER_PREFIX,
    VAE_PREFIX,
)
from nodeloom.runtime.models.ldm_unet import unet_name
from nodeloom.runtime.models.ldm_vae import vae_name
from nodeloom.runtime.models.text.places import SD15_TEXT_PREFIX
from nodeloom.runtime.models.tiny import UnetSize, VaeSize, unet_spec, vae_spec
from nodeloom.runtime.models.tiny_controlnet import HINT_WIDTHS, controlnet_spec

from .diffusion import SCALE_FACTOR
from .run_files import save_tensors
from .text import Vocabulary, whole_table

Tensors = Mapping[str, torch.Tensor]

# Only their names are used: the widths say where the layout has a shortcut.
_UNET: Final = UnetSize(width=1, multiples=(1, 2), num_resnets=1, depths=(0, 1), context=1)
_VAE: Final = VaeSize(width=1, multiples=(2, 1, 1, 2), num_resnets=1)
_NUM_LEVELS: Final = len(_VAE.multiples)
_TOKENS: Final = "embeddings.token_embedding.weight"
METADATA: Final = {"license": "Apache-2.0", "source": "nodeloom, training/"}


def export_checkpoint(
    path: Path,
    *,
    unet: Tensors,
    text: Tensors,
    vocabulary: Vocabulary,
    vae: Tensors,
    scale: tuple[torch.Tensor, torch.Tensor],
) -> None:
    """Write the denoiser, the text encoder and the VAE as one checkpoint.

    Args:
        unet, text, vae: weights under the modules' names.
        scale: mean and deviation of the VAE's latents, which become 0 and 1 for the denoiser.
    """
    tensors = {
        **_prefixed(DENOISER_PREFIX, _original(unet, unet_spec(_UNET), lambda n: unet_name(n, 1))),
        **_prefixed(VAE_PREFIX, _original_vae(_scaled(vae, *scale))),
    }
    for name, tensor in text.items():
        whole = whole_table(vocabulary, tensor) if name == _TOKENS else tensor
        tensors[f"{SD15_TEXT_PREFIX}text_model.{name}"] = whole
    _save(path, tensors)


def export_controlnet(path: Path, controlnet: Tensors) -> None:
    """Write a ControlNet in the cldm layout."""
    original = _original(controlnet, _controlnet_names(), _controlnet_name)
    _save(path, _prefixed(CONTROLNET_PREFIX, original))


def export_lora(path: Path, lora: Tensors) -> None:
    """Write a LoRA's tensors, which have their names already."""
    _save(path, lora)


def export_embedding(path: Path, vectors: torch.Tensor) -> None:
    """Write a textual inversion [n, width]."""
    _save(path, {PLAIN_NAME: vectors})


def _controlnet_names() -> list[str]:
    return list(controlnet_spec(_UNET))


def _controlnet_name(name: str) -> str:
    """The name that `ControlNetModel` has for a weight of the cldm layout."""
    head, number, *_ = parts = name.split(".")
    leaf = parts[-1]
    if head == "zero_convs":
        return f"controlnet_down_blocks.{number}.{leaf}"
    if head == "middle_block_out":
        return f"controlnet_mid_block.{leaf}"
    if head == "input_hint_block":
        place = int(number) // 2  # between two convolutions there is an activation
        block = {0: "conv_in", len(HINT_WIDTHS) - 1: "conv_out"}.get(place, f"blocks.{place - 1}")
        return f"controlnet_cond_embedding.{block}.{leaf}"
    return unet_name(name, 1)


def _scaled(vae: Tensors, centre: torch.Tensor, spread: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same VAE with latents of mean 0 and deviation 1 / SCALE_FACTOR."""
    tensors = dict(vae)
    unit = spread * SCALE_FACTOR
    channels = len(centre)
    weight, bias = tensors["quant_conv.weight"].clone(), tensors["quant_conv.bias"].clone()
    weight[:channels] /= unit.reshape(-1, 1, 1, 1)
    bias[:channels] = (bias[:channels] - centre) / unit
    tensors["quant_conv.weight"], tensors["quant_conv.bias"] = weight, bias
    weight = tensors["post_quant_conv.weight"]
    tensors["post_quant_conv.weight"] = weight * unit.reshape(1, -1, 1, 1)
    tensors["post_quant_conv.bias"] = tensors["post_quant_conv.bias"] + weight[:, :, 0, 0] @ centre
    return tensors


def _original_vae(vae: Tensors) -> dict[str, torch.Tensor]:
    original = _original(vae, vae_spec(_VAE), lambda name: vae_name(name, _NUM_LEVELS))
    return {
        name: tensor[:, :, None, None] if ".attn_1." in name and tensor.dim() == 2 else tensor
        for name, tensor in original.items()
    }


def _original(own: Tensors, names: Iterable[str], own_name: object) -> dict[str, torch.Tensor]:
    """The tensors under the original layout's names. Raises: ValueError: one has no such name."""
    assert callable(own_name)
    found = {name: own[own_name(name)] for name in names if own_name(name) in own}
    left = own.keys() - {own_name(name) for name in found}
    if left:
        raise ValueError(f"{len(left)} weights have no name in the layout: {sorted(left)[:3]}")
    return found


def _prefixed(prefix: str, tensors: Tensors) -> dict[str, torch.Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _save(path: Path, tensors: Tensors) -> None:
    save_tensors(path, {name: tensor.half() for name, tensor in tensors.items()}, METADATA)
