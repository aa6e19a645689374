"""Calls of a UNet of SD1.5 (the denoiser's or a ControlNet's) that share a forward pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import torch

from ....graph_import.sampling.model_sampling import ModelSampling
from ...errors import NodeFailed

# Contexts of unequal length share a forward by being repeated up to this many tokens.
MAX_REPEATED_TOKENS: Final = 77 * 32

UnetCall = Mapping[str, object]


@dataclass(slots=True, frozen=True)
class UnetInputs:
    """What goes into a forward pass of several calls.

    Args:
        x: [N, C, h, w], scaled to unit variance.
        timesteps: [N].
        context: [N, tokens, width].
        counts: how many of the N rows each call has.
    """

    x: torch.Tensor
    timesteps: torch.Tensor
    context: torch.Tensor
    counts: list[int]

    def forward(self, module: Any, **more: object) -> Any:
        """Call the module, in its dtype and on its device."""
        return module(
            self.x.to(module.device, module.dtype),
            self.timesteps.to(module.device),
            encoder_hidden_states=self.context.to(module.device, module.dtype),
            **more,
        )


def groups_of(
    calls: Sequence[UnetCall], *, in_channels: int, context_width: int
) -> list[list[int]]:
    """Indices of calls that share a forward: equal size, and contexts that can be repeated.

    Raises: NodeFailed: a call does not fit the model.
    """
    groups: list[list[int]] = []
    tokens: list[int] = []
    for index, call in enumerate(calls):
        x, context = tensor_of(call, "x"), tensor_of(call, "context")
        _check_shapes(x, context, in_channels, context_width)
        for position, group in enumerate(groups):
            common = math.lcm(tokens[position], context.shape[1])
            same_size = tensor_of(calls[group[0]], "x").shape[1:] == x.shape[1:]
            same_tokens = common == tokens[position] == context.shape[1]
            if same_size and (same_tokens or common <= MAX_REPEATED_TOKENS):
                group.append(index)
                tokens[position] = common
                break
        else:
            groups.append([index])
            tokens.append(context.shape[1])
    return groups


def unet_inputs(calls: Sequence[UnetCall], own: ModelSampling, *, num_extra: int = 0) -> UnetInputs:
    """The inputs of one forward pass for a group of calls.

    A call may say how its denoiser measures noise (`model_sampling`); others do as `own`. A network
    that takes `num_extra` channels more than x has gets them as they are, unscaled. Raises:
    NodeFailed: a call brings another number.
    """
    xs = [tensor_of(call, "x") for call in calls]
    sigmas = [cast(float, call["sigma"]) for call in calls]
    counts = [len(x) for x in xs]
    samplings = [cast(ModelSampling, call.get("model_sampling", own)) for call in calls]
    scaled = [
        x * sampling.input_scale(sigma)
        for x, sigma, sampling in zip(xs, sigmas, samplings, strict=True)
    ]
    if num_extra:
        extras = [_extra_channels(call, num_extra) for call in calls]
        scaled = [torch.cat(both, dim=1) for both in zip(scaled, extras, strict=True)]
    timesteps = [
        torch.full((count,), float(sampling.timestep(sigma)))
        for count, sigma, sampling in zip(counts, sigmas, samplings, strict=True)
    ]
    contexts = [tensor_of(call, "context") for call in calls]
    tokens = math.lcm(*(context.shape[1] for context in contexts))
    repeated = [
        context.repeat(1, tokens // context.shape[1], 1).expand(count, -1, -1)
        for context, count in zip(contexts, counts, strict=True)
    ]
    return UnetInputs(torch.cat(scaled), torch.cat(timesteps), torch.cat(repeated), counts)


def tensor_of(call: UnetCall, name: str) -> torch.Tensor:
    """The tensor called `name`. Raises: NodeFailed: it is something else."""
    value = call[name]
    if not isinstance(value, torch.Tensor):
        raise NodeFailed(f"{name} must be a tensor, not {type(value).__name__}")
    return value


def _extra_channels(call: UnetCall, count: int) -> torch.Tensor:
    source = call.get("extra_channels")
    given = source() if callable(source) else None
    if not isinstance(given, torch.Tensor) or given.shape[1] != count:
        raise NodeFailed(f"this model takes {count} channels beside the latents; the call has none")
    return given


def _check_shapes(
    x: torch.Tensor, context: torch.Tensor, in_channels: int, context_width: int
) -> None:
    if x.ndim != 4:
        raise NodeFailed(f"this model takes pictures, but the latents are {list(x.shape)}")
    if context.shape[-1] != context_width:
        raise NodeFailed(
            f"the conditioning is {context.shape[-1]} wide, but this model takes "
            f"{context_width}: it comes from a text encoder of another family"
        )
    if context.shape[0] not in (1, x.shape[0]):
        raise NodeFailed(
            f"the conditioning is for {context.shape[0]} pictures, the latents for {x.shape[0]}"
        )
    if x.shape[1] != in_channels:
        raise NodeFailed(f"the latents have {x.shape[1]} channels, this model takes {in_channels}")
