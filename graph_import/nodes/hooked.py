"""LoRAs that hang on entries of a conditioning: where they are put, and where it is sampled with.

At each evaluation the calls of the entries with one set of hooks run on the denoiser under these
LoRAs, as a DAG node of their own whose estimates the denoiser's node takes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..families import sampling_of
from ..handles import ModelRef, Patch
from ..ir import Edge, ParamValue
from ..sampling.base import Evaluation
from ..sampling.model_sampling import ModelSampling
from ..types import CONDITIONING
from .controls import Args, Guides
from .lowering import Handle, Lowering, Value
from .values import Hook, Steering


def with_hooks(
    node: Lowering, given: Steering, hooks: tuple[Hook, ...], part: str | None = None
) -> Steering:
    """A conditioning with these hooks on every entry, behind those that it has."""
    if not hooks:
        return given
    markers = {f"hook_{index}": hook.marker for index, hook in enumerate(hooks)}
    (edge,) = node.add("cond_hooks", {"conditioning": given, **markers}, part=part)
    sets = (together(own, hooks) for own in given.hooks)
    return msgspec.structs.replace(given, edge=edge, hooks=tuple(dict.fromkeys(sets)))


def together(*groups: Iterable[Hook]) -> tuple[Hook, ...]:
    """All hooks in order; equal ones count once."""
    return tuple(dict.fromkeys(hook for group in groups for hook in group))


def under_encoder_hooks(node: Lowering, outputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """What a node gives, its conditionings under the hooks of the text encoders on its inputs."""
    given = [value for value in node.inputs.values() if isinstance(value, Handle)]
    hooks = together(*(handle.hooks for handle in given))
    if not hooks:
        return outputs
    hung: list[Value] = []
    for slot, (port, value) in enumerate(zip(node.schema.outputs, outputs, strict=True)):
        if port.type == CONDITIONING and isinstance(value, Edge | Steering):
            steering = Steering(edge=value) if isinstance(value, Edge) else value
            value = with_hooks(node, steering, hooks, part=f"hooks-{slot}")
        hung.append(value)
    return tuple(hung)


def patched(ref: ModelRef, strengths: Iterable[tuple[Hook, float]]) -> ModelRef:
    """A model under the LoRAs of hooks, each at the strength beside it, behind its own."""
    added = [Patch(file=hook.file, strength=strength) for hook, strength in strengths if strength]
    return msgspec.structs.replace(ref, patches=(*ref.patches, *added))


def add_hooked(
    node: Lowering, guides: Guides, evaluation: Evaluation, args: Args, model: ModelRef
) -> dict[str, Value | ParamValue]:
    """Add a node for each set of hooks that changes `model`; what the denoiser is given of it.

    `args` is what the denoiser's node of this evaluation gets.
    """
    given: dict[str, Value | ParamValue] = {}
    sampling = sampling_of(str(args["family"]), str(args.get("model_sampling", "")))
    for index, hooks in enumerate(guides.hooks):
        sigma = evaluation.sigma
        hooked = patched(model, ((h, _strength(h, sigma, sampling)) for h in hooks))
        if hooked != model:
            markers = {f"hook_{number}": hook.marker for number, hook in enumerate(hooks)}
            (given[f"estimates_{index}"],) = node.add(
                "denoise_hooked",
                {**args, **markers},
                part=f"eval-{evaluation.index}-hooks-{index}",
                model=hooked,
            )
    return given


def _strength(hook: Hook, sigma: float, sampling: ModelSampling) -> float:
    """That of the last keyframe that has begun; before the first one, of the first."""
    begun = [k for k in hook.keyframes if sampling.percent_to_sigma(k.start_percent) >= sigma]
    counting = (begun or hook.keyframes[:1])[-1:]
    return hook.strength_model * (counting[0].strength if counting else 1.0)
