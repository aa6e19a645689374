"""The autoencoder: its shape, its training, and latents of many pictures.

The module is diffusers' `AutoencoderKL`, as our runtime runs it, with 32 groups in every norm. Some
parts would cost most of the arithmetic and change little in flat pictures: blocks at full
resolution, and two thirds of the encoder's first channels. They are left out while training and are
exact zeros in the file. How it starts is in `colour_path.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name
from numpy.typing import NDArray

from .colour_path import lay_colour_path
from .rendering import Pixels, Style, render
from .scenes import SIZE, draw_scene

CONFIG: Final[dict[str, Any]] = {
    "in_channels": 3,
    "out_channels": 3,
    "latent_channels": 4,
    "block_out_channels": (96, 32, 32, 96),
    "layers_per_block": 1,
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
}
FIRST_WIDTH: Final = 32  # channels of the encoder's first level that are trained
LATENT_SIDE: Final = SIZE // 8
POSTERIOR_NOISE: Final = 0.06  # of a latent's standard deviation, added while training


class Bypass(torch.nn.Module):
    """A residual block whose second convolution is zero: the shortcut alone."""

    def __init__(self, conv_shortcut: torch.nn.Module | None) -> None:
        super().__init__()
        self.conv_shortcut = conv_shortcut

    def forward(self, hidden: torch.Tensor, temb: object = None) -> torch.Tensor:
        if self.conv_shortcut is None:
            return hidden
        shortcut: torch.Tensor = self.conv_shortcut(hidden)
        return shortcut


def build_vae() -> Any:
    """The module for training, without the blocks that stay zero."""
    from diffusers import AutoencoderKL

    vae_class: Any = AutoencoderKL
    vae = vae_class(**CONFIG)
    encoder, decoder = vae.encoder.down_blocks, vae.decoder.up_blocks
    vae.encoder.conv_in = torch.nn.Conv2d(3, FIRST_WIDTH, 3, padding=1)
    encoder[0].resnets[0] = Bypass(None)
    encoder[0].downsamplers[0].channels = FIRST_WIDTH
    encoder[0].downsamplers[0].conv = torch.nn.Conv2d(FIRST_WIDTH, FIRST_WIDTH, 3, stride=2)
    encoder[1].resnets[0] = Bypass(torch.nn.Conv2d(FIRST_WIDTH, 32, 1))
    decoder[2].resnets[1] = Bypass(None)
    decoder[3].resnets[0] = Bypass(decoder[3].resnets[0].conv_shortcut)
    decoder[3].resnets[1] = Bypass(None)
    for half in (vae.encoder, vae.decoder):
        half.mid_block.resnets[1] = Bypass(None)
    lay_colour_path(vae)
    return vae


def whole_vae(trained: Mapping[str, torch.Tensor]) -> Any:
    """The module as the file has it: these weights, and zeros for what training left out."""
    from diffusers import AutoencoderKL

    vae_class: Any = AutoencoderKL
    vae = vae_class(**CONFIG)
    weights = vae.state_dict()
    unknown = trained.keys() - weights.keys()
    if unknown:
        raise ValueError(f"the run has weights that the module hasn't: {sorted(unknown)[:3]}")
    for name, weight in weights.items():
        is_scale = "norm" in name and name.endswith("weight")
        weight.fill_(1.0 if is_scale else 0.0)
        if name in trained:
            weight[tuple(slice(0, side) for side in trained[name].shape)] = trained[name]
    return vae.eval().requires_grad_(False)


class VaeStage:
    """Trains reconstruction: mean absolute error of pixels and of their differences.

    Latents are pulled to mean 0 and deviation 1; a little noise on them makes nearby latents mean
    similar pictures.

    Args:
        crop: side of the squares that are cut out of pictures, in pixels.
        batch: how many of them a step sees.
    """

    def __init__(self, *, seed: int, batch: int, crop: int) -> None:
        torch.manual_seed(seed)
        self.vae = build_vae()
        self._seed = seed
        self._batch = batch
        self._crop = crop

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return dict(self.vae.named_parameters())

    def loss(self, step: int) -> torch.Tensor:
        pixels = to_tensor(crops((self._seed, step), self._batch, self._crop))
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        mean = self.vae.encode(pixels).latent_dist.mean
        noise = torch.randn(mean.shape, generator=generator)
        decoded = self.vae.decode(mean + POSTERIOR_NOISE * noise).sample
        return _pixel_loss(decoded, pixels) + 0.02 * _moment_loss(mean)


class DecoderStage:
    """Goes on with the decoder alone, for an encoder that stays as it is.

    Every fourth step sees whole pictures, as many pixels in all.
    """

    def __init__(
        self, trained: Mapping[str, torch.Tensor], *, seed: int, batch: int, crop: int
    ) -> None:
        self.vae = build_vae()
        self.vae.load_state_dict(dict(trained))
        self._seed = seed
        self._batch = batch
        self._crop = crop

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return {
            name: weight
            for name, weight in self.vae.named_parameters()
            if name.startswith(("decoder.", "post_quant_conv."))
        }

    def loss(self, step: int) -> torch.Tensor:
        side, count = self._crop, self._batch
        if step % 4 == 3:
            side, count = SIZE, max(1, count * side**2 // SIZE**2)
        pixels = to_tensor(crops((self._seed, step), count, side))
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        with torch.no_grad():
            mean = self.vae.encode(pixels).latent_dist.mean
            mean += POSTERIOR_NOISE * torch.randn(mean.shape, generator=generator)
        return _pixel_loss(self.vae.decode(mean).sample, pixels)


def _pixel_loss(decoded: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    return F.l1_loss(decoded, pixels) + 0.5 * _edge_loss(decoded, pixels)


def _edge_loss(decoded: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    """Mean absolute error of the differences between neighbours."""
    error = decoded - pixels
    return error.diff(dim=2).abs().mean() + error.diff(dim=3).abs().mean()


def _moment_loss(latents: torch.Tensor) -> torch.Tensor:
    """How far each channel is from mean 0 and deviation 1 over the batch."""
    channels = latents.transpose(0, 1).flatten(1)
    mean: torch.Tensor = channels.mean(dim=1).square().mean()
    return mean + channels.std(dim=1).log().square().mean()


def crops(seed: tuple[int, int], count: int, side: int) -> NDArray[np.uint8]:
    """Squares of drawn pictures [count, side, side, 3], most with a part of a contour in them."""
    rng = np.random.default_rng(seed)
    return np.stack([_crop(rng, side) for _ in range(count)])


def _crop(rng: np.random.Generator, side: int) -> Pixels:
    scene = draw_scene(int(rng.integers(1 << 31)), anywhere=bool(rng.random() < 0.3))
    chance = rng.random()
    style = Style.INK if chance < 0.1 else Style.SEPIA if chance < 0.2 else Style.PLAIN
    pixels = render(scene, style)
    x, y = rng.integers(0, SIZE - side + 1, 2)
    if scene.things and rng.random() < 0.8:
        thing = scene.things[int(rng.integers(len(scene.things)))]
        angle = rng.uniform(0.0, 2.0 * np.pi)
        reach = 0.7 * thing.radius
        centre = np.array([thing.x + reach * np.cos(angle), thing.y + reach * np.sin(angle)])
        x, y = np.clip(np.round(centre - side / 2), 0, SIZE - side).astype(int)
    return pixels[y : y + side, x : x + side]


def to_tensor(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Pictures [B, H, W, 3] as the autoencoder takes them: float32 [B, 3, H, W], -1 to 1."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(127.5).sub(1.0)


def to_pixels(decoded: torch.Tensor) -> NDArray[np.uint8]:
    """Decoded pictures [B, 3, H, W] as bytes [B, H, W, 3]."""
    scaled = decoded.detach().add(1.0).mul(127.5).round().clamp(0, 255)
    pixels: NDArray[np.uint8] = scaled.byte().permute(0, 2, 3, 1).numpy()
    return pixels


@torch.no_grad()
def encode(vae: Any, batches: Iterator[NDArray[np.uint8]]) -> torch.Tensor:
    """Latents [N, 4, 16, 16] of pictures, unscaled."""
    return torch.cat([vae.encode(to_tensor(pixels)).latent_dist.mean for pixels in batches])
