"""What a sampler is here: a plan of model evaluations and a pure update. Arithmetic only, no torch.

The arrays are whatever supports `+`, `-` and `*` with floats (torch tensors in the executor). A
step can therefore be re-executed, moved to another executor, batched, or stopped between
evaluations. Source: architecture, section 5.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

Array = Any  # torch.Tensor in executors, numpy in tests: only arithmetic is asked of it


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model: at noise level `sigma`, in sampling step `step` (from 0).

    A multi-evaluation sampler (heun) has several evaluations per step; `is_step_end` marks the one
    whose update finishes the step.
    """

    index: int
    step: int
    sigma: float
    is_step_end: bool


class SamplerState(msgspec.Struct, frozen=True, kw_only=True):
    """What goes from one evaluation to the next.

    Args:
        x: noisy latents at the current sigma, [B, C, H/8, W/8].
        x_eval: what the model is evaluated at next, when that isn't `x` (second stage of heun).
        history: earlier derivatives or denoised latents that the sampler needs, newest first.
    """

    x: Array
    x_eval: Array | None = None
    history: tuple[Array, ...] = ()


class Noise(Protocol):
    """The request's own stream of sampler noise."""

    def __call__(self, like: Array) -> Array:
        """Standard normal values of the shape of `like`; each call advances the stream."""
        ...


class Sampler(Protocol):
    """A named sampler. It holds no state of a request."""

    name: str

    def plan(self, sigmas: tuple[float, ...]) -> tuple[Evaluation, ...]:
        """The model evaluations of a run over the falling `sigmas` (the last is usually 0.0)."""
        ...

    def update(
        self,
        state: SamplerState,
        denoised: Array,
        evaluation: Evaluation,
        sigmas: tuple[float, ...],
        noise: Noise,
    ) -> SamplerState:
        """The state after `evaluation`, whose estimate of x0 is `denoised`; `state` stays as is."""
        ...
