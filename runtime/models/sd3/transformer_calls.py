"""Calls of a transformer of SD3 (the denoiser's or a ControlNet's) that share a forward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch

from ....graph_import.sampling.model_sampling import ModelSampling
from ...errors import NodeFailed

TransformerCall = Mapping[str, object]


@dataclass(slots=True, frozen=True)
class TransformerInputs:
    """What goes into a forward pass of several calls.

    Args:
        x: [N, C, h, w], both sides multiples of the patch size.
        timesteps: [N].
        context: [N, tokens, width].
        pooled: [N, width].
        counts: how many of the N rows each call has.
        size: (h, w) without what was added to fill the last patches.
    """

    x: torch.Tensor
    timesteps: torch.Tensor
    context: torch.Tensor
    pooled: torch.Tensor
    counts: list[int]
    size: tuple[int, int]

    def forward(self, module: Any, **more: object) -> Any:
        """Call the module, in its dtype and on its device."""
        given = {
            "hidden_states": self.x.to(module.device, module.dtype),
            "timestep": self.timesteps.to(module.device),
            "encoder_hidden_states": self.context.to(module.device, module.dtype),
            "pooled_projections": self.pooled.to(module.device, module.dtype),
        }
        return module(**given, **more)


def groups_of(calls: Sequence[TransformerCall], config: Any) -> list[list[int]]:
    """Indices of calls that share a forward: equal sizes, and equally many tokens.

    A transformer attends to every token, so contexts can't be filled up to one length.
    Args: config: the module's.
    Raises: NodeFailed: a call does not fit the model.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, call in enumerate(calls):
        x, context = tensor_of(call, "x"), tensor_of(call, "context")
        _check_shapes(x, context, config)
        groups.setdefault((*x.shape[1:], context.shape[1]), []).append(index)
    return list(groups.values())


def transformer_inputs(
    calls: Sequence[TransformerCall], own: ModelSampling, config: Any, *, is_pooled: bool = True
) -> TransformerInputs:
    """The inputs of one forward pass for a group of calls.

    A call may say how its denoiser measures noise (`model_sampling`); others do as `own`.
    Args: is_pooled: whether the pooled vectors go in; else zeros.
    Raises: NodeFailed: a pooled vector is missing or does not fit.
    """
    xs = [tensor_of(call, "x") for call in calls]
    counts = [len(x) for x in xs]
    scaled: list[torch.Tensor] = []
    timesteps: list[torch.Tensor] = []
    for call, x in zip(calls, xs, strict=True):
        sampling = cast(ModelSampling, call.get("model_sampling", own))
        sigma = cast(float, call["sigma"])
        scaled.append(filled_patches(x * sampling.input_scale(sigma), config.patch_size))
        timesteps.append(torch.full((len(x),), float(sampling.timestep(sigma))))
    contexts = [tensor_of(call, "context").expand(len(x), -1, -1) for call, x in _each(calls, xs)]
    width = config.pooled_projection_dim
    pooled = [
        _pooled(call, len(x), width) if is_pooled else torch.zeros(len(x), width)
        for call, x in _each(calls, xs)
    ]
    return TransformerInputs(
        x=torch.cat(scaled),
        timesteps=torch.cat(timesteps),
        context=torch.cat(contexts),
        pooled=torch.cat(pooled),
        counts=counts,
        size=(xs[0].shape[-2], xs[0].shape[-1]),
    )


def filled_patches(x: torch.Tensor, patch_size: int) -> torch.Tensor:
    """Latents [B, C, h, w] with whole patches: what lacks on the right and below wraps around."""
    below, right = (-side % patch_size for side in x.shape[-2:])
    if not below and not right:
        return x
    return torch.nn.functional.pad(x, (0, right, 0, below), mode="circular")


def tensor_of(call: TransformerCall, name: str) -> torch.Tensor:
    """The tensor called `name`. Raises: NodeFailed: it is something else."""
    value = call[name]
    if not isinstance(value, torch.Tensor):
        raise NodeFailed(f"{name} must be a tensor, not {type(value).__name__}")
    return value


def _each(
    calls: Sequence[TransformerCall], xs: Sequence[torch.Tensor]
) -> list[tuple[TransformerCall, torch.Tensor]]:
    return list(zip(calls, xs, strict=True))


def _pooled(call: TransformerCall, count: int, width: int) -> torch.Tensor:
    """The call's pooled vector for each of its pictures, [count, width]."""
    pooled = call.get("pooled")
    if not isinstance(pooled, torch.Tensor):
        raise NodeFailed("the conditioning has no pooled vector, which this model needs")
    if pooled.dim() != 2 or pooled.shape[1] != width or len(pooled) not in (1, count):
        raise NodeFailed(
            f"the conditioning's pooled vector is {list(pooled.shape)}, but this model takes "
            f"{width}: it comes from a text encoder of another family"
        )
    return pooled.expand(count, -1)


def _check_shapes(x: torch.Tensor, context: torch.Tensor, config: Any) -> None:
    if context.shape[-1] != config.joint_attention_dim:
        raise NodeFailed(
            f"the conditioning is {context.shape[-1]} wide, but this model takes "
            f"{config.joint_attention_dim}: it comes from a text encoder of another family"
        )
    if context.shape[0] not in (1, x.shape[0]):
        raise NodeFailed(
            f"the conditioning is for {context.shape[0]} pictures, the latents for {x.shape[0]}"
        )
    if x.dim() != 4 or x.shape[1] != config.in_channels:
        raise NodeFailed(
            f"the latents are {list(x.shape)}, this model takes {config.in_channels} channels"
        )
    most = config.pos_embed_max_size * config.patch_size
    if max(x.shape[-2:]) > most:
        raise NodeFailed(
            f"the latents are {list(x.shape[-2:])} large, this model knows {most} positions a side"
        )
