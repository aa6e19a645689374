"""The UNet of SD1.5 as a denoiser: noisy latents in, the estimate of x0 out.

It works in the denoiser's scaled latent space; guidance and the sampler's update are elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import torch

from ....graph_import import types
from ....graph_import.families import sampling_of
from ....graph_import.handles import MODEL_SAMPLING
from ....graph_import.model import Model
from ..checkpoint import (
    EIGHT_BITS,
    Check,
    build_module,
    count_bytes,
    estimate_bytes,
    no_check,
    read_weights,
)
from ..headers import DENOISER_PREFIX
from ..ldm_unet import context_width, unet_config, unet_name
from ..lora_file import Part
from ..patch_target import PatchTarget, module_spellings
from .late_residuals import ResidualFetch, late_residuals
from .unet_calls import UnetCall, groups_of, tensor_of, unet_inputs

LATENT_CHANNELS: Final = 4
PREFIXES: Final = (DENOISER_PREFIX, "")  # a file of the UNet's own has none


class Denoiser(Model):
    """Inputs: x float32 [B, 4, h, w], sigma, context float32 [1 or B, tokens, width].

    A call may have `residuals` (`late_residuals.py`), which are fetched after the middle block. An
    inpainting UNet takes five channels more, which `extra_channels` of a call gives.
    Output: denoised float32 [B, 4, h, w] on the CPU. Many calls share one forward pass.
    """

    _num_bytes: int | None = None

    def setup_io(self) -> None:
        self.add_input("x", types.LATENT)
        self.add_input("sigma", types.FLOAT)
        self.add_input("context", types.CONDITIONING)
        self.add_input("residuals", types.RESIDUALS, deferred=True)
        self.add_output("denoised", types.LATENT)

    def load(self, device: str, check: Check = no_check) -> None:
        """Read the UNet; float32 on a CPU and float16 elsewhere, as ComfyUI computes it.

        A key of an 8-bit dtype rounds the weights to it; the arithmetic stays the same.
        """
        from diffusers import UNet2DConditionModel

        unet_class: Any = UNet2DConditionModel
        weights = read_weights(self.ref.key.file, PREFIXES, check)
        config = unet_config(weights)
        num_resnets = config["layers_per_block"]
        self._module = build_module(
            lambda: unet_class(**config),
            weights,
            {unet_name(name, num_resnets): t for name, t in weights.tensors.items()},
            dtype=torch.float32 if device == "cpu" else torch.float16,
            stored=EIGHT_BITS.get(self.ref.key.dtype),
            device=device,
            check=check,
        )
        self._original_names = {name: unet_name(name, num_resnets) for name in weights}
        self._context_width = context_width(weights)
        self._num_bytes = count_bytes(self._module)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights; before they are loaded, what the file's header lets expect."""
        if self._num_bytes is None:
            return estimate_bytes(self.ref.key.file, PREFIXES)
        return self._num_bytes

    def patch_target(self) -> PatchTarget:
        """The UNet's weights, under diffusers' names and those of the original layout."""
        originals = [
            (original.rpartition(".")[0], own.rpartition(".")[0])
            for original, own in self._original_names.items()
        ]
        # diffusers' attention processors call their last matrix `to_out`, without its number.
        outputs = [
            (own.removesuffix(".0"), own) for _, own in originals if own.endswith("to_out.0")
        ]
        return PatchTarget(
            part=Part.DENOISER,
            module=self._module,
            modules=module_spellings(self._module, [*originals, *outputs]),
            stored=None,
        )

    def execute(self, **inputs: object) -> Mapping[str, object]:
        return self.execute_batch([inputs])[0]

    @torch.no_grad()
    def execute_batch(self, calls: Sequence[UnetCall]) -> list[Mapping[str, object]]:
        """Run the calls in as few forwards as their shapes allow. Raises: NodeFailed: a misfit."""
        results: list[Mapping[str, object]] = [{} for _ in calls]
        groups = groups_of(
            calls,
            in_channels=LATENT_CHANNELS,
            context_width=self._context_width,
        )
        for group in groups:
            denoised = self._forward([calls[index] for index in group])
            for index, tensor in zip(group, denoised, strict=True):
                results[index] = {"denoised": tensor}
        return results

    def _forward(self, calls: Sequence[UnetCall]) -> list[torch.Tensor]:
        sampling = sampling_of(self.ref.key.family, self.ref.option(MODEL_SAMPLING))
        num_extra = self._module.config.in_channels - LATENT_CHANNELS
        inputs = unet_inputs(calls, sampling, num_extra=num_extra)
        fetches = [cast(ResidualFetch | None, call.get("residuals")) for call in calls]
        with late_residuals(self._module, fetches, inputs.counts):
            noise_pred = inputs.forward(self._module).sample.to("cpu", torch.float32)
        return [
            sampling.denoised(tensor_of(call, "x"), part, cast(float, call["sigma"]))
            for call, part in zip(calls, torch.split(noise_pred, list(inputs.counts)), strict=True)
        ]
