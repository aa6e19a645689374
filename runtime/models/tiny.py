"""Small SD1.5 checkpoints with random weights, in the original single-file layout.

For demos, tests and benchmarks: real files of a real family that any machine can run. The bytes are
the same everywhere; how weights get their values is in `weight_spec.py`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from .headers import DENOISER_PREFIX, VAE_PREFIX
from .text.places import SD15_TEXT_PREFIX
from .weight_spec import Spec, materialise


class UnetSize(msgspec.Struct, frozen=True, kw_only=True):
    """Base width, its multiple per level, resnets and transformers per level, width of the text.

    And the channels that it takes: 9 are an inpainting UNet's.
    """

    width: int
    multiples: tuple[int, ...]
    num_resnets: int
    depths: tuple[int, ...]
    context: int
    in_channels: int = 4


class VaeSize(msgspec.Struct, frozen=True, kw_only=True):
    """Base width, its multiple per level (each but the last halves the picture), resnets."""

    width: int
    multiples: tuple[int, ...]
    num_resnets: int


class TextSize(msgspec.Struct, frozen=True, kw_only=True):
    """Width, layers and inner width of CLIP's text transformer."""

    width: int
    num_layers: int
    inner: int


class Sd15Size(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a whole checkpoint."""

    unet: UnetSize
    vae: VaeSize
    text: TextSize


# 10 MB; a step with guidance at 64 by 64 pixels takes 20 ms of one core.
TINY: Final = Sd15Size(
    unet=UnetSize(width=32, multiples=(1, 2), num_resnets=1, depths=(1, 0), context=64),
    vae=VaeSize(width=32, multiples=(1, 1, 2, 2), num_resnets=1),
    text=TextSize(width=64, num_layers=2, inner=128),
)
TINY_INPAINT: Final = msgspec.structs.replace(
    TINY, unet=msgspec.structs.replace(TINY.unet, in_channels=9)
)
# 55 MB, 80 ms; for benchmarks, whose steps must outweigh the way to the executor and back.
SLOW: Final = Sd15Size(
    unet=UnetSize(width=128, multiples=(1, 2, 2), num_resnets=1, depths=(1, 1, 0), context=64),
    vae=TINY.vae,
    text=TINY.text,
)


def write_tiny_sd15(path: Path, *, seed: int = 0, size: Sd15Size = TINY) -> None:
    """Write a checkpoint to `path`, whole or not at all."""
    spec = Spec()
    for prefix, part in (
        (DENOISER_PREFIX, unet_spec(size.unet)),
        (VAE_PREFIX, vae_spec(size.vae)),
        (SD15_TEXT_PREFIX, text_spec(size.text)),
    ):
        spec.update({prefix + name: entry for name, entry in part.items()})
    write_spec(path, spec, seed)


def write_spec(path: Path, spec: Spec, seed: int) -> None:
    """Write a file of random weights to `path`, whole or not at all."""
    from safetensors.numpy import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    os.close(handle)
    try:
        save_file(materialise(spec, seed), unfinished)
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def unet_spec(size: UnetSize) -> Spec:
    """The UNet in the LDM layout, without its prefix."""
    spec, width, embedding = Spec(), size.width, size.width * 4
    spec.linear("time_embed.0", width, embedding)
    spec.linear("time_embed.2", embedding, embedding)
    spec.conv("input_blocks.0.0", size.in_channels, width)
    index, skips, last = 1, [width], len(size.multiples) - 1
    for level, multiple in enumerate(size.multiples):
        for _ in range(size.num_resnets):
            _unet_resnet(spec, f"input_blocks.{index}.0", width, multiple * size.width, embedding)
            width = multiple * size.width
            if size.depths[level]:
                _transformer(spec, f"input_blocks.{index}.1", width, size, size.depths[level])
            skips.append(width)
            index += 1
        if level != last:
            spec.conv(f"input_blocks.{index}.0.op", width, width)
            skips.append(width)
            index += 1
    _unet_resnet(spec, "middle_block.0", width, width, embedding)
    _transformer(spec, "middle_block.1", width, size, 1)
    _unet_resnet(spec, "middle_block.2", width, width, embedding)
    index = 0
    for level in range(last, -1, -1):
        outer, depth = size.multiples[level] * size.width, size.depths[level]
        for number in range(size.num_resnets + 1):
            block = f"output_blocks.{index}"
            _unet_resnet(spec, f"{block}.0", width + skips.pop(), outer, embedding)
            width = outer
            if depth:
                _transformer(spec, f"{block}.1", width, size, depth)
            if level and number == size.num_resnets:
                spec.conv(f"{block}.{2 if depth else 1}.conv", width, width)
            index += 1
    spec.norm("out.0", width)
    spec.conv("out.2", width, 4, gain=1.6)
    return spec


def _unet_resnet(spec: Spec, name: str, inner: int, outer: int, embedding: int) -> None:
    spec.norm(f"{name}.in_layers.0", inner)
    spec.conv(f"{name}.in_layers.2", inner, outer)
    spec.linear(f"{name}.emb_layers.1", embedding, outer, gain=0.5)
    spec.norm(f"{name}.out_layers.0", outer)
    spec.conv(f"{name}.out_layers.3", outer, outer, gain=0.5)
    if inner != outer:
        spec.conv(f"{name}.skip_connection", inner, outer, kernel=1, gain=0.7)


def _transformer(spec: Spec, name: str, width: int, size: UnetSize, depth: int) -> None:
    spec.norm(f"{name}.norm", width)
    spec.conv(f"{name}.proj_in", width, width, kernel=1)
    for number in range(depth):
        block = f"{name}.transformer_blocks.{number}"
        for attention, context in (("attn1", width), ("attn2", size.context)):
            spec.linear(f"{block}.{attention}.to_q", width, width, bias=False)
            spec.linear(f"{block}.{attention}.to_k", context, width, bias=False)
            spec.linear(f"{block}.{attention}.to_v", context, width, bias=False)
            spec.linear(f"{block}.{attention}.to_out.0", width, width, gain=0.5)
        spec.linear(f"{block}.ff.net.0.proj", width, width * 8)
        spec.linear(f"{block}.ff.net.2", width * 4, width, gain=0.7)
        for norm in ("norm1", "norm2", "norm3"):
            spec.norm(f"{block}.{norm}", width)
    spec.conv(f"{name}.proj_out", width, width, kernel=1, gain=0.5)


def vae_spec(size: VaeSize, *, latent_channels: int = 4, has_quant_convs: bool = True) -> Spec:
    """The autoencoder in the LDM layout, without its prefix."""
    spec, widths = Spec(), [size.width * multiple for multiple in size.multiples]
    spec.conv("encoder.conv_in", 3, size.width)
    width, last = size.width, len(widths) - 1
    for level, outer in enumerate(widths):
        for block in range(size.num_resnets):
            _vae_resnet(spec, f"encoder.down.{level}.block.{block}", width, outer)
            width = outer
        if level != last:
            spec.conv(f"encoder.down.{level}.downsample.conv", width, width)
    _vae_middle(spec, "encoder.mid", width)
    spec.norm("encoder.norm_out", width)
    spec.conv("encoder.conv_out", width, 2 * latent_channels, gain=3.0)
    spec.conv("decoder.conv_in", latent_channels, width)
    _vae_middle(spec, "decoder.mid", width)
    for level in range(last, -1, -1):
        for block in range(size.num_resnets + 1):
            _vae_resnet(spec, f"decoder.up.{level}.block.{block}", width, widths[level])
            width = widths[level]
        if level:
            spec.conv(f"decoder.up.{level}.upsample.conv", width, width)
    spec.norm("decoder.norm_out", width)
    spec.conv("decoder.conv_out", width, 3, gain=0.6)
    if has_quant_convs:
        spec.conv("quant_conv", 2 * latent_channels, 2 * latent_channels, kernel=1)
        spec.conv("post_quant_conv", latent_channels, latent_channels, kernel=1)
    return spec


def _vae_resnet(spec: Spec, name: str, inner: int, outer: int) -> None:
    spec.norm(f"{name}.norm1", inner)
    spec.conv(f"{name}.conv1", inner, outer)
    spec.norm(f"{name}.norm2", outer)
    spec.conv(f"{name}.conv2", outer, outer, gain=0.5)
    if inner != outer:
        spec.conv(f"{name}.nin_shortcut", inner, outer, kernel=1)


def _vae_middle(spec: Spec, name: str, width: int) -> None:
    _vae_resnet(spec, f"{name}.block_1", width, width)
    spec.norm(f"{name}.attn_1.norm", width)
    for part in ("q", "k", "v", "proj_out"):
        spec.conv(f"{name}.attn_1.{part}", width, width, kernel=1)
    _vae_resnet(spec, f"{name}.block_2", width, width)


def text_spec(size: TextSize, *, vocabulary: int = 49408, positions: int = 77) -> Spec:
    """CLIP's text transformer under Hugging Face names, without its prefix."""
    spec, width = Spec(), size.width
    spec.noise("text_model.embeddings.token_embedding.weight", vocabulary, width, std=0.3)
    spec.noise("text_model.embeddings.position_embedding.weight", positions, width, std=0.1)
    for number in range(size.num_layers):
        layer = f"text_model.encoder.layers.{number}"
        for part in ("q_proj", "k_proj", "v_proj"):
            spec.linear(f"{layer}.self_attn.{part}", width, width)
        spec.linear(f"{layer}.self_attn.out_proj", width, width, gain=0.5)
        spec.linear(f"{layer}.mlp.fc1", width, size.inner)
        spec.linear(f"{layer}.mlp.fc2", size.inner, width, gain=0.5)
        spec.norm(f"{layer}.layer_norm1", width)
        spec.norm(f"{layer}.layer_norm2", width)
    spec.norm("text_model.final_layer_norm", width)
    return spec
