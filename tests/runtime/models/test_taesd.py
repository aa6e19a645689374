"""TAESD decoders: the file's own layers, and files that are no decoder."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import AutoencoderTiny
from kit.taesd import NUM_BLOCKS, decoder_spec, write_decoder
from nodeloom.graph_import.errors import ModelFileProblem
from nodeloom.runtime.models.taesd import MAX_FILE_BYTES, TinyDecoder
from nodeloom.runtime.models.weight_files import identify
from nodeloom.runtime.models.weight_spec import materialise
from safetensors.torch import load_file, save_file
from torch import nn

Tensors = dict[str, torch.Tensor]
CLOSE = 1e-5


class Clamp(nn.Module):
    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        return torch.tanh(latents / 3) * 3


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        convs = [nn.Conv2d(width, width, 3, padding=1) for _ in range(3)]
        self.conv = nn.Sequential(convs[0], nn.ReLU(), convs[1], nn.ReLU(), convs[2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x) + x)


def published_layers(latent_channels: int, width: int) -> nn.Sequential:
    """The decoder as it was published: a plain sequence, whose state dict the file is."""

    def stage(num_blocks: int) -> list[nn.Module]:
        blocks: list[nn.Module] = [Block(width) for _ in range(num_blocks)]
        return [*blocks, nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3, 1, 1, bias=False)]

    *doubling, last = NUM_BLOCKS
    layers: list[nn.Module] = [Clamp(), nn.Conv2d(latent_channels, width, 3, 1, 1), nn.ReLU()]
    for num_blocks in doubling:
        layers += stage(num_blocks)
    layers += [Block(width) for _ in range(last)]
    return nn.Sequential(*layers, nn.Conv2d(width, 3, 3, 1, 1))


def some_latents(channels: int) -> torch.Tensor:
    """Two of 5 by 7 positions; some of the values are far out, where the clamp counts."""
    generator = torch.Generator().manual_seed(5)
    return torch.randn(2, channels, 5, 7, generator=generator) * 2.5


def load(path: Path) -> TinyDecoder:
    return TinyDecoder.load(identify(path), "cpu")


@pytest.mark.parametrize(("channels", "width"), [(4, 8), (4, 64), (16, 8)])
def test_it_decodes_as_the_layers_that_the_file_names(
    tmp_path: Path, channels: int, width: int
) -> None:
    path = write_decoder(tmp_path / "d.safetensors", width=width, latent_channels=channels)
    layers = published_layers(channels, width)
    layers.load_state_dict({name: one.float() for name, one in load_file(path).items()})
    latents, decoder = some_latents(channels), load(path)
    with torch.no_grad():
        expected = layers(latents).clamp(0, 1).permute(0, 2, 3, 1)
    decoded = decoder.decode(latents)
    assert decoder.latent_channels == channels
    assert decoded.shape == (2, 40, 56, 3)
    assert expected.std() > 0.05
    assert (decoded - expected).abs().max() < CLOSE


@pytest.mark.parametrize("num_blocks", [NUM_BLOCKS, (1, 2, 0, 3)])
def test_it_decodes_as_diffusers_does(tmp_path: Path, num_blocks: tuple[int, ...]) -> None:
    path = tmp_path / "d.safetensors"
    spec = materialise(decoder_spec(8, num_blocks=num_blocks), 3)
    save_file({name: torch.from_numpy(one) for name, one in spec.items()}, path)
    widths = (8,) * len(num_blocks)
    autoencoder: Any = AutoencoderTiny(
        decoder_block_out_channels=widths, num_decoder_blocks=num_blocks
    )
    theirs = {}
    for name, one in load_file(path).items():
        place, _, rest = name.partition(".")
        theirs[f"layers.{int(place) - 1}.{rest}"] = one.float()
    autoencoder.decoder.load_state_dict(theirs)
    latents = some_latents(4)
    with torch.no_grad():
        expected = autoencoder.decode(latents).sample.add(1).div(2).clamp(0, 1)
    assert (load(path).decode(latents) - expected.permute(0, 2, 3, 1)).abs().max() < CLOSE


def test_numbers_that_are_none_become_black(tmp_path: Path) -> None:
    path = write_decoder(tmp_path / "d.safetensors")
    latents = torch.full((1, 4, 2, 2), torch.nan)
    assert load(path).decode(latents).eq(0.0).all()


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {other: one for other, one in tensors.items() if other != name}


def with_one(name: str, *shape: int) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: torch.zeros(shape)}


def without_last_stage(tensors: Tensors) -> Tensors:
    return {name: one for name, one in tensors.items() if int(name.partition(".")[0]) < 18}


def encoder(tensors: Tensors) -> Tensors:
    """An encoder's file: it has such names too, but its first layer is a convolution."""
    places = sorted({int(name.partition(".")[0]) for name in tensors})
    lower = {old: new for new, old in pairwise([0, *places])}
    return {f"{lower[int(n.split('.')[0])]}.{n.partition('.')[2]}": t for n, t in tensors.items()}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without("1.weight"), "stages instead of 4|1.weight is missing"),
        (without("19.bias"), "missing"),
        (without("4.conv.2.weight"), "missing"),
        (with_one("4.conv.6.weight", 8, 8, 3, 3), "unknown"),
        (with_one("5.conv.1.weight", 8), "unknown"),
        (with_one("7.bias", 8), "unknown"),
        (with_one("taesd_decoder.1.weight", 8, 4, 3, 3), "has no weight"),
        (with_one("3.pool.0.weight", 8, 8, 1, 1), "has no weight"),
        (with_one("3.conv.2.weight", 8, 16, 3, 3), "has shape"),
        (with_one("1.weight", 8), "wrong shape"),
        (with_one("19.weight", 4, 8, 3, 3), "4 colours"),
        (with_one("24.weight", 3, 8, 3, 3), "5 stages"),
        (without_last_stage, "3 stages"),
        (encoder, "stages|missing"),
    ],
)
def test_a_file_that_is_no_decoder_is_refused(
    tmp_path: Path, change: Callable[[Tensors], Tensors], reason: str
) -> None:
    path = write_decoder(tmp_path / "d.safetensors")
    save_file(change(load_file(path)), tmp_path / "other.safetensors")
    with pytest.raises(ModelFileProblem, match=reason):
        load(tmp_path / "other.safetensors")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = write_decoder(tmp_path / "d.safetensors")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ModelFileProblem, match="truncated"):
        load(path)


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "taesd_decoder.pth"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ModelFileProblem, match="convert it to safetensors"):
        load(path)


def test_a_file_of_other_sizes_than_previews_need_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(ModelFileProblem, match="more than"):
        load(path)


def test_a_file_that_changed_since_it_was_looked_at_is_refused(tmp_path: Path) -> None:
    path = write_decoder(tmp_path / "d.safetensors")
    seen = identify(path)
    write_decoder(path, width=16)
    with pytest.raises(ModelFileProblem, match="changed"):
        TinyDecoder.load(seen, "cpu")
