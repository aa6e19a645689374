"""A ControlNet of SD3 in InstantX's layout: a copy of the transformer's first blocks.

It looks at a hint that is a latent: the encoded picture. Files are under diffusers' names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from ....graph_import import types
from ....graph_import.families import family
from ....graph_import.model import Model
from ...errors import NodeFailed
from ...values import CallResiduals
from ..checkpoint import (
    Check,
    Weights,
    build_module,
    count_bytes,
    estimate_bytes,
    no_check,
    read_weights,
)
from ..mmdit import HEAD_WIDTH
from .transformer_calls import (
    TransformerCall,
    filled_patches,
    groups_of,
    tensor_of,
    transformer_inputs,
)

PREFIXES: Final = ("",)


class ControlNet(Model):
    """Inputs: x float32 [B, 16, h, w], sigma, context [1 or B, tokens, width], hint [B, 16, h, w].

    The hint is in the denoiser's scale, without its shift; the pooled vector is zero, as these
    ControlNets were trained. Output: residuals, float32 on the CPU, one for each block.
    """

    _num_bytes: int | None = None

    def setup_io(self) -> None:
        self.add_input("x", types.LATENT)
        self.add_input("sigma", types.FLOAT)
        self.add_input("context", types.CONDITIONING)
        self.add_input("hint", types.LATENT)
        self.add_output("residuals", types.RESIDUALS)

    def load(self, device: str, check: Check = no_check) -> None:
        """Read the weights; float32 on a CPU and float16 elsewhere, as the denoiser's."""
        from diffusers import SD3ControlNetModel

        controlnet_class: Any = SD3ControlNetModel
        weights = read_weights(self.ref.key.file, PREFIXES, check)
        config = controlnet_config(weights)
        self._module = build_module(
            lambda: controlnet_class(**config),
            weights,
            weights.tensors,
            dtype=torch.float32 if device == "cpu" else torch.float16,
            device=device,
            check=check,
        )
        self._num_bytes = count_bytes(self._module)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights; before they are loaded, what the file's header lets expect."""
        if self._num_bytes is None:
            return estimate_bytes(self.ref.key.file, PREFIXES)
        return self._num_bytes

    def execute(self, **inputs: object) -> Mapping[str, object]:
        return self.execute_batch([inputs])[0]

    @torch.no_grad()
    def execute_batch(self, calls: Sequence[TransformerCall]) -> list[Mapping[str, object]]:
        """Run the calls in as few forwards as their shapes allow. Raises: NodeFailed: a misfit."""
        results: list[Mapping[str, object]] = [{} for _ in calls]
        for group in groups_of(calls, self._module.config):
            given = self._forward([calls[index] for index in group])
            for index, residuals in zip(group, given, strict=True):
                results[index] = {"residuals": residuals}
        return results

    def _forward(self, calls: Sequence[TransformerCall]) -> list[CallResiduals]:
        own = family(self.ref.key.family).model_sampling
        inputs = transformer_inputs(calls, own, self._module.config, is_pooled=False)
        hints = torch.cat([self._hint(call) for call in calls])
        (blocks,) = inputs.forward(self._module, controlnet_cond=hints, return_dict=False)
        parts = [
            torch.split(block.to("cpu", torch.float32), list(inputs.counts)) for block in blocks
        ]
        return [CallResiduals(blocks=own_parts) for own_parts in zip(*parts, strict=True)]

    def _hint(self, call: TransformerCall) -> torch.Tensor:
        x, hint = tensor_of(call, "x"), tensor_of(call, "hint")
        if hint.shape != x.shape:
            raise NodeFailed(
                f"the hint of this ControlNet must be a latent {list(x.shape)} here, "
                f"not {list(hint.shape)}"
            )
        filled = filled_patches(hint, self._module.config.patch_size)
        return filled.to(self._module.device, self._module.dtype)


def controlnet_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `SD3ControlNetModel`, from shapes. Raises: ModelFileProblem."""
    width, in_channels, patch_size, _ = weights.shape("pos_embed.proj.weight", 4)
    num_layers = weights.count(r"transformer_blocks\.(\d+)\.")
    has_norms = "transformer_blocks.0.attn.norm_q.weight" in weights
    return {
        "sample_size": 128,
        "patch_size": patch_size,
        "in_channels": in_channels,
        "out_channels": in_channels,
        "num_layers": num_layers,
        "attention_head_dim": HEAD_WIDTH,
        "num_attention_heads": width // HEAD_WIDTH,
        "joint_attention_dim": weights.shape("context_embedder.weight", 2)[1],
        "caption_projection_dim": width,
        "pooled_projection_dim": weights.shape("time_text_embed.text_embedder.linear_1.weight", 2)[
            1
        ],
        "pos_embed_max_size": math.isqrt(weights.shape("pos_embed.pos_embed", 3)[1]),
        "extra_conditioning_channels": weights.shape("pos_embed_input.proj.weight", 4)[1]
        - in_channels,
        "qk_norm": "rms_norm" if has_norms else None,
        "dual_attention_layers": tuple(
            index
            for index in range(num_layers)
            if f"transformer_blocks.{index}.attn2.to_q.weight" in weights
        ),
    }
