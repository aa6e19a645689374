"""The autoencoder of SD1.5 and SD3: latents to pictures and back; latents are unscaled.

Source: design notes on models, section 4: the mean is encoded, never a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from ....graph_import import types
from ....graph_import.model import Model
from ...errors import NodeFailed
from ..checkpoint import Check, build_module, count_bytes, estimate_bytes, no_check, read_weights
from ..headers import VAE_PREFIX
from ..ldm_vae import num_levels, rename_vae, vae_config

PREFIXES: Final = (VAE_PREFIX, "")  # a file of the VAE's own has none


class Vae(Model):
    """Given `samples` float32 [B, C, h, w] it decodes, given `pixels` [B, H, W, C] it encodes.

    Outputs: image float32 [B, 8h, 8w, 3] in 0 to 1, or latent float32 [B, C, H/8, W/8]; on the CPU.
    Pictures go through one at a time: memory is bounded, and a batch gives the bits of one alone.
    """

    _num_bytes: int | None = None

    def setup_io(self) -> None:
        self.add_input("samples", types.LATENT)
        self.add_input("pixels", types.IMAGE)
        self.add_output("image", types.IMAGE)
        self.add_output("latent", types.LATENT)

    def load(self, device: str, check: Check = no_check) -> None:
        """Read the autoencoder; float32 on a CPU and bfloat16 elsewhere, as ComfyUI computes it."""
        from diffusers import AutoencoderKL

        vae_class: Any = AutoencoderKL
        weights = read_weights(self.ref.key.file, PREFIXES, check)
        config = vae_config(weights)
        self._module = build_module(
            lambda: vae_class(**config),
            weights,
            rename_vae(weights),
            dtype=torch.float32 if device == "cpu" else torch.bfloat16,
            device=device,
            check=check,
        )
        self._multiple = 2 ** (num_levels(weights) - 1)
        self._num_bytes = count_bytes(self._module)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights; before they are loaded, what the file's header lets expect."""
        if self._num_bytes is None:
            return estimate_bytes(self.ref.key.file, PREFIXES)
        return self._num_bytes

    def execute(self, **inputs: object) -> Mapping[str, object]:
        """Decode `samples` or encode `pixels`. Raises: NodeFailed: neither, or of a wrong shape."""
        samples, pixels = inputs.get("samples"), inputs.get("pixels")
        if isinstance(samples, torch.Tensor):
            return {"image": torch.cat([self.decode(one) for one in torch.split(samples, 1)])}
        if isinstance(pixels, torch.Tensor):
            return {"latent": torch.cat([self.encode(one) for one in torch.split(pixels, 1)])}
        raise NodeFailed("a VAE takes either latents or pictures")

    @torch.no_grad()
    def decode(self, samples: torch.Tensor) -> torch.Tensor:
        """Latents [B, C, h, w] to pictures [B, 8h, 8w, 3], clamped to 0 to 1."""
        channels = self._module.config.latent_channels
        if samples.dim() != 4 or samples.shape[1] != channels:
            raise NodeFailed(f"this VAE decodes latents of {channels} channels, not {_of(samples)}")
        decoded: torch.Tensor = self._module.decode(self._to_device(samples)).sample
        pixels = decoded.to("cpu", torch.float32).add_(1.0).div_(2.0).clamp_(0.0, 1.0)
        return pixels.permute(0, 2, 3, 1).contiguous()

    @torch.no_grad()
    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pictures [B, H, W, 3 or more] to latents; sides are cropped to a multiple of 8."""
        if pixels.dim() != 4 or pixels.shape[3] < 3:
            raise NodeFailed(f"this VAE encodes pictures of 3 channels, not {_of(pixels)}")
        cropped = self._crop(pixels)[..., :3].permute(0, 3, 1, 2)
        posterior = self._module.encode(self._to_device(cropped * 2.0 - 1.0)).latent_dist
        mean: torch.Tensor = posterior.mode()
        return mean.to("cpu", torch.float32).contiguous()

    def _crop(self, pixels: torch.Tensor) -> torch.Tensor:
        for dim in (1, 2):
            size = pixels.shape[dim]
            kept = size // self._multiple * self._multiple
            if kept == 0:
                raise NodeFailed(
                    f"a picture of {size} pixels is too small: {self._multiple} needed"
                )
            pixels = pixels.narrow(dim, (size - kept) // 2, kept)
        return pixels

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._module.device, self._module.dtype)


def _of(tensor: torch.Tensor) -> str:
    return f"a tensor of shape {list(tensor.shape)}"
