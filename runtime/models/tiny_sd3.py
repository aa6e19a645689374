"""Small SD3 checkpoints and ControlNets with random weights; beside `tiny.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from .headers import DENOISER_PREFIX, VAE_PREFIX
from .mmdit import HEAD_WIDTH
from .text.places import JOINT_TEXT_PREFIX
from .tiny import TINY, TextSize, VaeSize, text_spec, vae_spec, write_spec
from .weight_spec import Spec

LATENT_CHANNELS: Final = 16
PATCH_SIZE: Final = 2
TIMESTEP_WIDTH: Final = 256


class MmditSize(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks (each adds a head), widths of text and pooled vector, positions along a side.

    Args:
        has_norms: queries and keys are normalised, as in SD3.5.
        dual_blocks: blocks with a second attention over the picture alone, as in SD3.5 medium.
    """

    num_blocks: int
    context: int
    pooled: int
    positions: int
    has_norms: bool = False
    dual_blocks: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Width of the hidden states."""
        return HEAD_WIDTH * self.num_blocks


class Sd3Size(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a whole checkpoint; of its text encoders only CLIP-L."""

    mmdit: MmditSize
    vae: VaeSize
    text: TextSize


TINY_SD3: Final = Sd3Size(
    # The text's widths are those of the real encoders, which the padding goes to.
    mmdit=MmditSize(num_blocks=2, context=4096, pooled=2048, positions=32),
    vae=TINY.vae,
    text=TextSize(width=768, num_layers=2, inner=128),
)


def write_tiny_sd3(path: Path, *, seed: int = 0, size: Sd3Size = TINY_SD3) -> None:
    """Write a checkpoint to `path`, whole or not at all."""
    spec = Spec()
    vae = vae_spec(size.vae, latent_channels=LATENT_CHANNELS, has_quant_convs=False)
    for prefix, part in (
        (DENOISER_PREFIX, mmdit_spec(size.mmdit)),
        (VAE_PREFIX, vae),
        (f"{JOINT_TEXT_PREFIX}clip_l.transformer.", text_spec(size.text)),
    ):
        spec.update({prefix + name: entry for name, entry in part.items()})
    write_spec(path, spec, seed)


def mmdit_spec(size: MmditSize) -> Spec:
    """The transformer in its original layout, without its prefix."""
    spec, width = Spec(), size.width
    spec.noise("pos_embed", 1, size.positions**2, width, std=0.5)
    spec.conv("x_embedder.proj", LATENT_CHANNELS, width, kernel=PATCH_SIZE)
    for embedder, inner in (("t_embedder", TIMESTEP_WIDTH), ("y_embedder", size.pooled)):
        spec.linear(f"{embedder}.mlp.0", inner, width)
        spec.linear(f"{embedder}.mlp.2", width, width)
    spec.linear("context_embedder", size.context, width)
    for block in range(size.num_blocks):
        is_last = block == size.num_blocks - 1
        is_dual = block in size.dual_blocks
        _block(spec, f"joint_blocks.{block}.context_block", size, is_last=is_last, is_dual=False)
        _block(spec, f"joint_blocks.{block}.x_block", size, is_last=False, is_dual=is_dual)
    spec.linear("final_layer.linear", width, PATCH_SIZE**2 * LATENT_CHANNELS)
    spec.linear("final_layer.adaLN_modulation.1", width, 2 * width, gain=0.5)
    return spec


def _block(spec: Spec, name: str, size: MmditSize, *, is_last: bool, is_dual: bool) -> None:
    """One side of a block. Nothing reads what the last block makes of the text."""
    width = size.width
    for attention in ("attn", "attn2") if is_dual else ("attn",):
        spec.linear(f"{name}.{attention}.qkv", width, 3 * width)
        if not is_last:
            spec.linear(f"{name}.{attention}.proj", width, width)
        if size.has_norms:
            for norm in ("ln_q", "ln_k"):
                spec[f"{name}.{attention}.{norm}.weight"] = ((HEAD_WIDTH,), 1.0, 0.1)
    if not is_last:
        spec.linear(f"{name}.mlp.fc1", width, 4 * width)
        spec.linear(f"{name}.mlp.fc2", 4 * width, width)
    num_parts = 2 if is_last else 9 if is_dual else 6
    spec.linear(f"{name}.adaLN_modulation.1", width, num_parts * width, gain=0.5)


def write_tiny_sd3_controlnet(
    path: Path, *, seed: int = 0, size: MmditSize = TINY_SD3.mmdit, num_blocks: int = 1
) -> None:
    """Write a ControlNet of `num_blocks` for a transformer of this size, whole or not at all."""
    write_spec(path, sd3_controlnet_spec(size, num_blocks), seed)


def sd3_controlnet_spec(size: MmditSize, num_blocks: int) -> Spec:
    """A ControlNet of InstantX's kind, under diffusers' names."""
    spec, width = Spec(), size.width
    spec.noise("pos_embed.pos_embed", 1, size.positions**2, width, std=0.5)
    for embedding in ("pos_embed", "pos_embed_input"):
        spec.conv(f"{embedding}.proj", LATENT_CHANNELS, width, kernel=PATCH_SIZE)
    for part, inner in (("timestep", TIMESTEP_WIDTH), ("text", size.pooled)):
        spec.linear(f"time_text_embed.{part}_embedder.linear_1", inner, width)
        spec.linear(f"time_text_embed.{part}_embedder.linear_2", width, width)
    spec.linear("context_embedder", size.context, width)
    for number in range(num_blocks):
        block = f"transformer_blocks.{number}"
        for norm in ("norm1", "norm1_context"):
            spec.linear(f"{block}.{norm}.linear", width, 6 * width, gain=0.5)
        for matrix in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj"):
            spec.linear(f"{block}.attn.{matrix}", width, width)
        for matrix in ("to_out.0", "to_add_out"):
            spec.linear(f"{block}.attn.{matrix}", width, width)
        for side in ("ff", "ff_context"):
            spec.linear(f"{block}.{side}.net.0.proj", width, 4 * width)
            spec.linear(f"{block}.{side}.net.2", 4 * width, width)
        spec.linear(f"controlnet_blocks.{number}", width, width, gain=0.3)
    return spec
