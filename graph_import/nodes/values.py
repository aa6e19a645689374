"""What an input holds while a node class is lowered: a constant, a model, what an edge brings.

Some values are more than an edge: a conditioning knows its ControlNets, a run knows its sigmas.
"""

from __future__ import annotations

import msgspec

from ..handles import ModelRef, Scalar
from ..ir import Edge
from ..sampling.guiders import CfgPatch, GuiderKind


class Constant(msgspec.Struct, frozen=True, kw_only=True):
    """A value known when the prompt is lowered."""

    value: Scalar


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """A model, symbolically."""

    ref: ModelRef


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A ControlNet on a conditioning: it becomes a DAG node per evaluation where it is active.

    The entries of the conditioning that it steers carry `marker`. `strength` may come over an edge.
    One for both sides of the guidance steers a negative side, too, that has none of its own.
    Where the family's hints are latents, `vae` encodes them.
    """

    marker: str
    model: ModelRef
    hint: Edge
    strength: Constant | Edge
    start_percent: float
    end_percent: float
    is_for_both_sides: bool = False
    vae: ModelRef | None = None


class Steering(msgspec.Struct, frozen=True, kw_only=True):
    """A CONDITIONING: the edge that carries its entries, and the ControlNets on them, in order."""

    edge: Edge
    controls: tuple[Control, ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A SAMPLER_STATE of a run that is lowered step by step.

    Args:
        edge: carries the state.
        latent: what the run started from.
        model_sampling: how the denoiser measures noise, where that isn't its family's way.
        num_steps_done: of the `len(sigmas) - 1` steps.
    """

    edge: Edge
    latent: Edge
    family: str
    sampler: str
    sigmas: tuple[float, ...]
    model_sampling: str = ""
    num_steps_done: int = 0

    @property
    def num_steps(self) -> int:
        """Steps of the whole run."""
        return len(self.sigmas) - 1


class Steered(msgspec.Struct, frozen=True, kw_only=True):
    """RESIDUALS before they are asked for: what a ControlNet adds to one denoiser's call.

    Without `control` nothing: its strength is 0.
    """

    control: Control | None
    run: Run
    positive: Steering
    negative: Steering


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """An ESTIMATE before it is asked for: the sampler's step evaluates the model and moves on."""

    run: Run
    model: ModelRef
    positive: Steering
    negative: Steering
    cfg: Constant | Edge


class EdgeList(msgspec.Struct, frozen=True, kw_only=True):
    """A list that an edge carries whole; `length`, an INT, says how many items there are."""

    edge: Edge
    length: Edge


class ListValue(msgspec.Struct, frozen=True, kw_only=True):
    """Several values where other nodes give one, in order: ComfyUI's lists.

    The items of an `EdgeList` among them stand in its place.
    """

    items: tuple[Value | EdgeList, ...]


class SigmasValue(msgspec.Struct, frozen=True, kw_only=True):
    """SIGMAS, known when the prompt is lowered."""

    sigmas: tuple[float, ...]


class SamplerValue(msgspec.Struct, frozen=True, kw_only=True):
    """A SAMPLER, by its text (`sampling.samplers.sampler_text`)."""

    text: str


class NoiseValue(msgspec.Struct, frozen=True, kw_only=True):
    """NOISE of a seed; no seed is no noise."""

    seed: Constant | Edge | None


class OperationValue(msgspec.Struct, frozen=True, kw_only=True):
    """A LATENT_OPERATION, as its node's class and numbers."""

    operation: CfgPatch


class GuiderValue(msgspec.Struct, frozen=True, kw_only=True):
    """A GUIDER: a model, the conditionings that guide it, and how strongly.

    Args:
        third: of the guiders that have a third side, with its number `cfg_third`.
    """

    kind: GuiderKind
    model: ModelRef
    positive: Steering
    negative: Steering
    cfg: Constant | Edge
    third: Steering | None = None
    cfg_third: Constant | Edge | None = None


SamplingValue = SigmasValue | SamplerValue | NoiseValue | OperationValue | GuiderValue
Value = Constant | Handle | Edge | Steering | Run | Steered | Estimate | ListValue | SamplingValue


def edges_of(value: Value | EdgeList) -> tuple[Edge, ...]:
    """The edges that a node with `value` on an input may come to read."""
    match value:
        case Edge():
            return (value,)
        case Steering(edge=edge, controls=controls):
            return (edge, *(e for control in controls for e in _edges_of_control(control)))
        case Run(edge=edge, latent=latent):
            return (edge, latent)
        case Steered(control=control):
            own = _edges_of_control(control) if control else ()
            return (*own, *_edges_of_call(value))
        case Estimate(cfg=cfg):
            return (*_edges_of_call(value), *((cfg,) if isinstance(cfg, Edge) else ()))
        case NoiseValue(seed=seed):
            return (seed,) if isinstance(seed, Edge) else ()
        case GuiderValue():
            return _edges_of_guider(value)
        case EdgeList(edge=edge, length=length):
            return (edge, length)
        case ListValue(items=items):
            return tuple(edge for item in items for edge in edges_of(item))
        case _:
            return ()


def models_of(value: Value | EdgeList) -> tuple[ModelRef, ...]:
    """The models that a node with `value` on an input may come to use."""
    match value:
        case Handle(ref=ref):
            return (ref,)
        case Estimate(model=model) | GuiderValue(model=model):
            return (model,)
        case ListValue(items=items):
            return tuple(ref for item in items for ref in models_of(item))
        case _:
            return ()


def _edges_of_control(control: Control) -> tuple[Edge, ...]:
    strength = control.strength
    return (control.hint, strength) if isinstance(strength, Edge) else (control.hint,)


def _edges_of_guider(guider: GuiderValue) -> tuple[Edge, ...]:
    sides = (guider.positive, guider.negative, guider.third)
    numbers = (guider.cfg, guider.cfg_third)
    return (
        *(edge for side in sides if side is not None for edge in edges_of(side)),
        *(number for number in numbers if isinstance(number, Edge)),
    )


def _edges_of_call(value: Steered | Estimate) -> tuple[Edge, ...]:
    return tuple(e for v in (value.run, value.positive, value.negative) for e in edges_of(v))
