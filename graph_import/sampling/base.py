"""What a sampler is here: a plan of model evaluations and a pure update. Arithmetic only, no torch.

The arrays are whatever supports `+`, `-` and `*` with floats (torch tensors in the executor). A
step can therefore be re-executed, moved to another executor, batched, or stopped between
evaluations. Source: architecture, section 5.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

if TYPE_CHECKING:
    from .model_sampling import ModelSampling

Array = Any  # torch.Tensor in executors, numpy in tests: only arithmetic is asked of it


class Course(msgspec.Struct, frozen=True):
    """What a run goes along: falling `sigmas`, the last usually 0.0, of a model sampling."""

    sigmas: tuple[float, ...]
    sampling: ModelSampling

    @property
    def num_steps(self) -> int:
        """Steps between the sigmas."""
        return max(len(self.sigmas) - 1, 0)


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model: at noise level `sigma`, in sampling step `step` (from 0).

    A multi-evaluation sampler (heun) has several evaluations per step; `is_step_end` marks the one
    whose update finishes the step.
    """

    index: int
    step: int
    sigma: float
    is_step_end: bool


class Estimate(msgspec.Struct, frozen=True):
    """What the model makes of the noisy latents: guided x0, and the negative side's own x0.

    `uncond` is there where the sampler `uses_uncond`.
    """

    denoised: Array
    uncond: Array | None = None

    @property
    def negative(self) -> Array:
        """The negative side's x0. Raises: TypeError: it wasn't asked for."""
        if self.uncond is None:
            raise TypeError("this estimate has no negative side")
        return self.uncond


class SamplerState(msgspec.Struct, frozen=True, kw_only=True):
    """What goes from one evaluation to the next.

    Args:
        x: noisy latents at the current sigma, [B, C, H/8, W/8].
        x_eval: what the model is evaluated at next, when that isn't `x` (second stage of heun).
        history: earlier derivatives or denoised latents that the sampler needs, newest first.
        scalars: numbers that it needs.
    """

    x: Array
    x_eval: Array | None = None
    history: tuple[Array, ...] = ()
    scalars: tuple[float, ...] = ()


class NoiseKind(StrEnum):
    """Where a sampler's noise comes from."""

    NONE = "none"
    RANDN = "randn"  # a stream of draws
    AFTER_START = "after_start"  # the draws that come after those of the initial noise
    BROWNIAN = "brownian"  # increments of one Brownian path over sigma


class Noise(Protocol):
    """The request's own sampler noise."""

    def __call__(self, like: Array, sigma_from: float, sigma_to: float) -> Array:
        """Standard normal values of the shape of `like`.

        Of a stream: each call advances it, whatever the sigmas. Of a Brownian path: its increment
        between the sigmas, at unit variance.
        """
        ...


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """A size, in latent units, that an estimate is brought to, by ComfyUI's name of a method."""

    height: int
    width: int
    method: str


class ModelCall(msgspec.Struct, frozen=True):
    """What an adaptive sampler asks for: the model's estimate of `x` at `sigma`.

    `is_step_start`: `x` is that of the step's start, not of a stage within it.
    """

    x: Array
    sigma: float
    is_step_start: bool


class Sampler(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named sampler with its options, which are its fields. It holds no state of a request.

    Class attributes:
        noise: where its noise comes from.
        uses_uncond: it needs the negative side's estimate, at any cfg.
        is_adaptive: it chooses its evaluations by their outcome: `run` stands for plan and update.
        fresh_mask_noise: under a noise mask the picture gets noise of its own, not the initial one.
    """

    name: str

    noise: ClassVar[NoiseKind] = NoiseKind.NONE
    uses_uncond: ClassVar[bool] = False
    is_adaptive: ClassVar[bool] = False
    fresh_mask_noise: ClassVar[bool] = False

    @property
    def draws_channels_last(self) -> bool:
        """Its draws fill the latents value by value, the channels of a place one after another."""
        return False

    def plan(self, course: Course) -> tuple[Evaluation, ...]:
        """The model evaluations of a run: one per step at the step's first sigma, unless said."""
        return tuple(
            Evaluation(index=step, step=step, sigma=sigma, is_step_end=True)
            for step, sigma in enumerate(course.sigmas[:-1])
        )

    def begin(self, x: Array, course: Course) -> SamplerState:
        """The state before the first evaluation, from latents under noise of the first sigma."""
        return SamplerState(x=x)

    def resize(self, state: SamplerState, evaluation: Evaluation, course: Course) -> Resize | None:
        """What size the estimate has to have before `update`; None: it keeps its size."""
        return None

    def update(
        self,
        state: SamplerState,
        estimate: Estimate,
        evaluation: Evaluation,
        course: Course,
        noise: Noise,
    ) -> SamplerState:
        """The state after `evaluation`, which gave `estimate`; `state` stays as is."""
        raise TypeError(f"{self.name} chooses its evaluations itself: it has a run")

    def run(self, x: Array, course: Course, noise: Noise) -> Generator[ModelCall, Estimate, Array]:
        """An adaptive sampler's whole run: asks for estimates, returns the last x."""
        raise TypeError(f"{self.name} plans its evaluations: it has no run")

    def finish(self, state: SamplerState, course: Course) -> SamplerState:
        """The state after the last evaluation, in the space that `begin` was given x in."""
        return state

    def last_sigma(self, course: Course) -> float:
        """The noise level at which the run ends."""
        return course.sigmas[-1]
