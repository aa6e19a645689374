"""The UNet of SD1.5 as a denoiser: noisy latents in, the estimate of x0 out.

It works in the denoiser's scaled latent space; guidance and the sampler's update are elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import torch

from ....graph_import import types
from ....graph_import.families import family
from ....graph_import.model import Model
from ...errors import NodeFailed
from ..checkpoint import Check, build_module, count_bytes, estimate_bytes, no_check, read_weights
from ..headers import DENOISER_PREFIX
from ..ldm_unet import context_width, unet_config, unet_name

# Contexts of unequal length share a forward by being repeated up to this many tokens.
MAX_REPEATED_TOKENS: Final = 77 * 32


class Denoiser(Model):
    """Inputs: x float32 [B, 4, h, w], sigma, context float32 [1 or B, tokens, width].

    Output: denoised float32 [B, 4, h, w] on the CPU. Many calls share one forward pass.
    """

    _num_bytes: int | None = None

    def setup_io(self) -> None:
        self.add_input("x", types.LATENT)
        self.add_input("sigma", types.FLOAT)
        self.add_input("context", types.CONDITIONING)
        self.add_output("denoised", types.LATENT)

    def load(self, device: str, check: Check = no_check) -> None:
        """Read the UNet; float32 on a CPU and float16 elsewhere, as ComfyUI computes it."""
        from diffusers import UNet2DConditionModel

        unet_class: Any = UNet2DConditionModel
        weights = read_weights(self.ref.key.file, (DENOISER_PREFIX,), check)
        config = unet_config(weights)
        num_resnets = config["layers_per_block"]
        self._module = build_module(
            lambda: unet_class(**config),
            weights,
            {unet_name(name, num_resnets): t for name, t in weights.tensors.items()},
            dtype=torch.float32 if device == "cpu" else torch.float16,
            device=device,
            check=check,
        )
        self._context_width = context_width(weights)
        self._num_bytes = count_bytes(self._module)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights; before they are loaded, what the file's header lets expect."""
        if self._num_bytes is None:
            return estimate_bytes(self.ref.key.file, (DENOISER_PREFIX,))
        return self._num_bytes

    def execute(self, **inputs: object) -> Mapping[str, object]:
        return self.execute_batch([inputs])[0]

    @torch.no_grad()
    def execute_batch(self, calls: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Run the calls in as few forwards as their shapes allow. Raises: NodeFailed: a misfit."""
        results: list[Mapping[str, object]] = [{} for _ in calls]
        for group in self._groups(calls):
            denoised = self._forward([calls[index] for index in group])
            for index, tensor in zip(group, denoised, strict=True):
                results[index] = {"denoised": tensor}
        return results

    def _groups(self, calls: Sequence[Mapping[str, object]]) -> list[list[int]]:
        """Indices of calls that share a forward: equal size, and contexts that can be repeated."""
        groups: list[list[int]] = []
        tokens: list[int] = []
        for index, call in enumerate(calls):
            x, context = _tensor(call, "x"), _tensor(call, "context")
            self._check_shapes(x, context)
            for position, group in enumerate(groups):
                common = math.lcm(tokens[position], context.shape[1])
                same_size = _tensor(calls[group[0]], "x").shape[1:] == x.shape[1:]
                same_tokens = common == tokens[position] == context.shape[1]
                if same_size and (same_tokens or common <= MAX_REPEATED_TOKENS):
                    group.append(index)
                    tokens[position] = common
                    break
            else:
                groups.append([index])
                tokens.append(context.shape[1])
        return groups

    def _check_shapes(self, x: torch.Tensor, context: torch.Tensor) -> None:
        if context.shape[-1] != self._context_width:
            raise NodeFailed(
                f"the conditioning is {context.shape[-1]} wide, but this model takes "
                f"{self._context_width}: it comes from a text encoder of another family"
            )
        if context.shape[0] not in (1, x.shape[0]):
            raise NodeFailed(
                f"the conditioning is for {context.shape[0]} pictures, the latents for {x.shape[0]}"
            )
        if x.shape[1] != self._module.config.in_channels:
            raise NodeFailed(
                f"the latents have {x.shape[1]} channels, this model takes "
                f"{self._module.config.in_channels}"
            )

    def _forward(self, calls: Sequence[Mapping[str, object]]) -> list[torch.Tensor]:
        sampling = family(self.ref.key.family).model_sampling
        xs = [_tensor(call, "x") for call in calls]
        sigmas = [cast(float, call["sigma"]) for call in calls]
        counts = [len(x) for x in xs]
        scaled = [x * sampling.input_scale(sigma) for x, sigma in zip(xs, sigmas, strict=True)]
        timesteps = [
            torch.full((count,), float(sampling.timestep(sigma)))
            for count, sigma in zip(counts, sigmas, strict=True)
        ]
        contexts = [_tensor(call, "context") for call in calls]
        tokens = math.lcm(*(context.shape[1] for context in contexts))
        repeated = [
            context.repeat(1, tokens // context.shape[1], 1).expand(count, -1, -1)
            for context, count in zip(contexts, counts, strict=True)
        ]
        noise_pred = self._predict(torch.cat(scaled), torch.cat(timesteps), torch.cat(repeated))
        parts = torch.split(noise_pred, counts)
        return [
            sampling.denoised(x, part, sigma)
            for x, part, sigma in zip(xs, parts, sigmas, strict=True)
        ]

    def _predict(
        self, x: torch.Tensor, timesteps: torch.Tensor, context: torch.Tensor
    ) -> torch.Tensor:
        """The predicted noise, float32 on the CPU."""
        module = self._module
        noise_pred: torch.Tensor = module(
            x.to(module.device, module.dtype),
            timesteps.to(module.device),
            encoder_hidden_states=context.to(module.device, module.dtype),
        ).sample
        return noise_pred.to("cpu", torch.float32)


def _tensor(call: Mapping[str, object], name: str) -> torch.Tensor:
    value = call[name]
    if not isinstance(value, torch.Tensor):
        raise NodeFailed(f"{name} must be a tensor, not {type(value).__name__}")
    return value
