"""A ControlNet of SD1.5: a copy of the UNet's encoder half that also looks at a hint picture.

Source: Zhang et al. (arXiv 2302.05543); files in the cldm layout or under diffusers' names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from ....graph_import import types
from ....graph_import.families import family
from ....graph_import.model import Model
from ...errors import NodeFailed
from ...values import LATENT_PIXELS, CallResiduals
from ..checkpoint import (
    Check,
    Weights,
    build_module,
    count_bytes,
    estimate_bytes,
    no_check,
    read_weights,
)
from ..headers import CONTROLNET_PREFIX
from ..ldm_unet import encoder_config, unet_name
from .hint_embedding import HintEmbedding
from .unet_calls import UnetCall, groups_of, tensor_of, unet_inputs

PREFIXES: Final = (CONTROLNET_PREFIX, "")
_HINT_BLOCK: Final = re.compile(r"input_hint_block\.(\d+)\.(weight|bias)")


class ControlNet(Model):
    """Inputs: x float32 [B, 4, h, w], sigma, context [1 or B, tokens, width], hint [B, 3, 8h, 8w].

    Output: residuals, float32 on the CPU. Many calls share one forward pass.
    """

    _num_bytes: int | None = None

    def setup_io(self) -> None:
        self.add_input("x", types.LATENT)
        self.add_input("sigma", types.FLOAT)
        self.add_input("context", types.CONDITIONING)
        self.add_input("hint", types.IMAGE)
        self.add_output("residuals", types.RESIDUALS)

    def load(self, device: str, check: Check = no_check) -> None:
        """Read the weights; float32 on a CPU and float16 elsewhere, as the denoiser's."""
        from diffusers import ControlNetModel

        controlnet_class: Any = ControlNetModel
        weights = read_weights(self.ref.key.file, PREFIXES, check)
        is_own_layout = "controlnet_cond_embedding.conv_in.weight" in weights
        config = _own_config(weights) if is_own_layout else _cldm_config(weights)
        renamed = weights.tensors if is_own_layout else _from_cldm(weights, config)
        self._module = build_module(
            lambda: controlnet_class(**config),
            weights,
            renamed,
            dtype=torch.float32 if device == "cpu" else torch.float16,
            device=device,
            check=check,
        )
        self._num_bytes = count_bytes(self._module)
        self._hints = HintEmbedding(self._module.controlnet_cond_embedding)
        self._module.controlnet_cond_embedding = torch.nn.Identity()  # it gets embeddings

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights; before they are loaded, what the file's header lets expect."""
        if self._num_bytes is None:
            return estimate_bytes(self.ref.key.file, PREFIXES)
        return self._num_bytes

    def execute(self, **inputs: object) -> Mapping[str, object]:
        return self.execute_batch([inputs])[0]

    @torch.no_grad()
    def execute_batch(self, calls: Sequence[UnetCall]) -> list[Mapping[str, object]]:
        """Run the calls in as few forwards as their shapes allow. Raises: NodeFailed: a misfit."""
        results: list[Mapping[str, object]] = [{} for _ in calls]
        groups = groups_of(
            calls,
            in_channels=self._module.config.in_channels,
            context_width=self._module.config.cross_attention_dim,
        )
        for group in groups:
            given = self._forward([calls[index] for index in group])
            for index, residuals in zip(group, given, strict=True):
                results[index] = {"residuals": residuals}
        return results

    def _forward(self, calls: Sequence[UnetCall]) -> list[CallResiduals]:
        inputs = unet_inputs(calls, family(self.ref.key.family).model_sampling)
        hints = torch.cat([self._hints.of(self._hint(call)) for call in calls])
        down, mid = inputs.forward(self._module, controlnet_cond=hints, return_dict=False)
        parts = [
            torch.split(tensor.to("cpu", torch.float32), list(inputs.counts))
            for tensor in [*down, mid]
        ]
        return [CallResiduals(blocks=own) for own in zip(*parts, strict=True)]

    def _hint(self, call: UnetCall) -> torch.Tensor:
        x, hint = tensor_of(call, "x"), tensor_of(call, "hint")
        height, width = (LATENT_PIXELS * side for side in x.shape[-2:])
        wanted = (len(x), self._module.config.conditioning_channels, height, width)
        if tuple(hint.shape) != wanted:
            raise NodeFailed(
                f"the hint of a ControlNet must be {list(wanted)} here, not {list(hint.shape)}"
            )
        return hint.to(self._module.device, self._module.dtype)


def _cldm_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `ControlNetModel` for the cldm layout. Raises: ModelFileProblem."""
    last = weights.count(r"input_hint_block\.(\d+)\.") - 1
    return {
        **encoder_config(weights),
        "conditioning_channels": weights.shape("input_hint_block.0.weight", 4)[1],
        "conditioning_embedding_out_channels": tuple(
            weights.shape(f"input_hint_block.{index}.weight", 4)[0] for index in range(0, last, 4)
        ),
    }


def _from_cldm(weights: Weights, config: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors under diffusers' names."""
    last = weights.count(r"input_hint_block\.(\d+)\.") - 1
    num_resnets = config["layers_per_block"]
    return {_cldm_name(name, num_resnets, last): tensor for name, tensor in weights.tensors.items()}


def _cldm_name(name: str, num_resnets: int, last_hint_block: int) -> str:
    parts = name.split(".")
    if parts[0] == "zero_convs":
        return f"controlnet_down_blocks.{parts[1]}.{parts[-1]}"
    if parts[0] == "middle_block_out":
        return f"controlnet_mid_block.{parts[-1]}"
    hint = _HINT_BLOCK.fullmatch(name)
    if hint is None:
        return unet_name(name, num_resnets)
    number = int(hint[1])
    inner = f"blocks.{number // 2 - 1}"
    block = {0: "conv_in", last_hint_block: "conv_out"}.get(number, inner)
    return f"controlnet_cond_embedding.{block}.{hint[2]}"


def _own_config(weights: Weights) -> dict[str, Any]:
    """Arguments of `ControlNetModel` for a file under its own names. Raises: ModelFileProblem."""
    num_levels = weights.count(r"down_blocks\.(\d+)\.")
    depths = [_depth(weights, f"down_blocks.{level}") for level in range(num_levels)]
    per_level = [max(depth, 1) for depth in depths]
    if depths and depths[-1] == 0:
        per_level[-1] = max(_depth(weights, "mid_block"), 1)
    embedding = "controlnet_cond_embedding."
    stages = weights.count(re.escape(embedding) + r"blocks\.(\d+)\.") // 2
    widths = [weights.shape(embedding + "conv_in.weight", 4)[0]]
    widths += [
        weights.shape(f"{embedding}blocks.{2 * stage + 1}.weight", 4)[0] for stage in range(stages)
    ]
    attention = "mid_block.attentions.0.transformer_blocks.0.attn2.to_k.weight"
    return {
        "in_channels": weights.shape("conv_in.weight", 4)[1],
        "block_out_channels": tuple(
            weights.shape(f"down_blocks.{level}.resnets.0.conv2.weight", 4)[0]
            for level in range(num_levels)
        ),
        "layers_per_block": weights.count(r"down_blocks\.0\.resnets\.(\d+)\."),
        "down_block_types": tuple(
            "CrossAttnDownBlock2D" if depth else "DownBlock2D" for depth in depths
        ),
        "transformer_layers_per_block": tuple(per_level),
        "cross_attention_dim": weights.shape(attention, 2)[1],
        "attention_head_dim": 8,  # the number of heads, in spite of its name
        "conditioning_channels": weights.shape(embedding + "conv_in.weight", 4)[1],
        "conditioning_embedding_out_channels": tuple(widths),
    }


def _depth(weights: Weights, block: str) -> int:
    pattern = re.escape(block) + r"\.attentions\.0\.transformer_blocks\.(\d+)\."
    return weights.count(pattern)
