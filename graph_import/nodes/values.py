"""What an input holds while a node class is lowered: a constant, a model, what an edge brings.

Some values are more than an edge: a conditioning knows its ControlNets, a run knows its sigmas.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from ..handles import FileIdentity, ModelRef, Scalar
from ..ir import Edge
from ..sampling.guiders import CfgPatch, GuiderKind

MARKER_DIGITS: Final = 32


class Constant(msgspec.Struct, frozen=True, kw_only=True):
    """A value known when the prompt is lowered."""

    value: Scalar


class Handle(msgspec.Struct, frozen=True, kw_only=True):
    """A model, symbolically.

    Args:
        perp_neg: what takes the place of classifier-free guidance, where it is guided.
        hooks: of a text encoder: what hangs on the texts that it encodes.
    """

    ref: ModelRef
    perp_neg: PerpNeg | None = None
    hooks: tuple[Hook, ...] = ()

    def on(self, ref: ModelRef) -> Handle:
        """The same for another model."""
        return msgspec.structs.replace(self, ref=ref)


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


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a checkpoint lacks: who uses it is refused, for this reason."""

    reason: str


class HookKeyframe(msgspec.Struct, frozen=True, kw_only=True):
    """How much of its strength a hook has from a share (0 to 1) of the sampling on."""

    start_percent: float
    strength: float


class KeyframesValue(msgspec.Struct, frozen=True, kw_only=True):
    """HOOK_KEYFRAMES, by their beginnings.

    Args:
        marker: equal ones have the same. There may be many keyframes, on many hooks of many nodes:
            they are looked through once.
    """

    keyframes: tuple[HookKeyframe, ...] = ()
    marker: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "marker", _marker_of(self.keyframes))

    def __hash__(self) -> int:
        return hash(self.marker)


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA that is on the denoiser only where an entry that it hangs on is evaluated.

    Args:
        timing: none: its whole strength all the time.
        marker: what the entries that it hangs on carry: equal hooks have the same.
    """

    file: FileIdentity
    strength_model: float
    strength_clip: float
    timing: KeyframesValue = msgspec.field(default_factory=KeyframesValue)
    marker: str = ""

    def __post_init__(self) -> None:
        strengths = (self.strength_model, self.strength_clip)
        marker = _marker_of((self.file, *strengths, self.timing.marker))
        msgspec.structs.force_setattr(self, "marker", marker)

    def __hash__(self) -> int:
        return hash(self.marker)


class HooksValue(msgspec.Struct, frozen=True, kw_only=True):
    """HOOKS; there may be none."""

    hooks: tuple[Hook, ...] = ()


class Steering(msgspec.Struct, frozen=True, kw_only=True):
    """A CONDITIONING: the edge that carries its entries, and what hangs on these.

    Args:
        controls: the ControlNets, in order.
        hooks: the sets of hooks that entries have, each once.
    """

    edge: Edge
    controls: tuple[Control, ...] = ()
    hooks: tuple[tuple[Hook, ...], ...] = ((),)

    def on(self, edge: Edge) -> Steering:
        """The same on the entries of another edge."""
        return msgspec.structs.replace(self, edge=edge)


class PerpNeg(msgspec.Struct, frozen=True, kw_only=True):
    """Guidance by what of the negative side isn't along the positive one, both from `empty`."""

    empty: Steering
    scale: Constant | Edge


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
HookingValue = HooksValue | KeyframesValue
Value = (
    Constant
    | Handle
    | Absent
    | Edge
    | Steering
    | Run
    | Steered
    | Estimate
    | ListValue
    | SamplingValue
    | HookingValue
)


def edges_of(value: Value | EdgeList) -> tuple[Edge, ...]:
    """The edges that a node with `value` on an input may come to read."""
    match value:
        case Edge():
            return (value,)
        case Handle(perp_neg=PerpNeg(empty=empty, scale=scale)):
            return (*edges_of(empty), *((scale,) if isinstance(scale, Edge) else ()))
        case Steering(edge=edge, controls=controls):
            return (edge, *(e for control in controls for e in _edges_of_control(control)))
        case Run(edge=edge, latent=other) | EdgeList(edge=edge, length=other):
            return (edge, other)
        case Steered(control=control):
            own = _edges_of_control(control) if control else ()
            return (*own, *_edges_of_call(value))
        case Estimate(cfg=cfg):
            return (*_edges_of_call(value), *((cfg,) if isinstance(cfg, Edge) else ()))
        case NoiseValue(seed=seed):
            return (seed,) if isinstance(seed, Edge) else ()
        case GuiderValue():
            return _edges_of_guider(value)
        case ListValue(items=items):
            return tuple(edge for item in items for edge in edges_of(item))
        case _:
            return ()


def patch_files_of(value: Value | EdgeList) -> tuple[FileIdentity, ...]:
    """The patch files that a node with `value` on an input may come to use."""
    match value:
        case Handle(ref=ref, perp_neg=perp_neg, hooks=hooks):
            own = tuple(patch.file for patch in ref.patches)
            hung = tuple(hook.file for hook in hooks)
            return (*own, *hung, *(patch_files_of(perp_neg.empty) if perp_neg else ()))
        case HooksValue(hooks=hooks):
            return tuple(hook.file for hook in hooks)
        case Steering(hooks=sets):
            return tuple(hook.file for hooks in sets for hook in hooks)
        case Steered(positive=positive, negative=negative):
            return (*patch_files_of(positive), *patch_files_of(negative))
        case Estimate(model=model) | GuiderValue(model=model):
            third = value.third if isinstance(value, GuiderValue) else None
            sides = (value.positive, value.negative, *(() if third is None else (third,)))
            own = tuple(patch.file for patch in model.patches)
            return (*own, *(file for side in sides for file in patch_files_of(side)))
        case ListValue(items=items):
            return tuple(file for item in items for file in patch_files_of(item))
        case _:
            return ()


def _marker_of(content: object) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(content)).hexdigest()[:MARKER_DIGITS]


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
