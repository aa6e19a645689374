"""LoRAs that hang on entries of a conditioning: where they are put, and where it is sampled with.

At each evaluation the calls of the entries with one set of hooks run on the denoiser under these
LoRAs, as a DAG node of their own whose estimates the denoiser's node takes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

import msgspec

from ..families import sampling_of
from ..handles import ModelRef, Patch
from ..ir import Edge, ParamValue
from ..sampling.base import Evaluation
from ..sampling.model_sampling import ModelSampling
from ..types import CONDITIONING
from .controls import Args, Guides, markers
from .lowering import Handle, Lowering, Value
from .values import Hook, Steering

MAX_HOOKS: Final = 64  # on an entry
MAX_SETS: Final = 64  # of a conditioning: each hook that hangs on half of it doubles them


def with_hooks(
    node: Lowering, given: Steering, hooks: tuple[Hook, ...], part: str | None = None
) -> Steering:
    """A conditioning with these hooks on every entry, behind those that it has.

    Raises: InputRefused: there are too many.
    """
    if not hooks:
        return given
    (edge,) = node.add("cond_hooks", {"conditioning": given, **markers(hooks)}, part=part)
    sets = all_sets(node, [together(own, hooks) for own in given.hooks])
    return msgspec.structs.replace(given, edge=edge, hooks=sets)


def all_sets(node: Lowering, sets: Iterable[tuple[Hook, ...]]) -> tuple[tuple[Hook, ...], ...]:
    """Every set of hooks once. Raises: InputRefused: there are too many, or one is too large."""
    found = tuple(dict.fromkeys(sets))
    num_hooks = max(len(hooks) for hooks in found)
    if len(found) <= MAX_SETS and num_hooks <= MAX_HOOKS:
        return found
    inputs = sorted(node.schema.inputs, key=lambda item: item.type != CONDITIONING)
    reason = (
        f"{len(found)} different sets of up to {num_hooks} hooks are too many: "
        f"{MAX_SETS} sets of {MAX_HOOKS} are possible"
    )
    raise node.refusal(inputs[0].name, reason)


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


def patches_of(strengths: Iterable[tuple[Hook, float]]) -> tuple[Patch, ...]:
    """The LoRAs of hooks, each at the strength beside it; none where that is 0."""
    return tuple(
        Patch(file=hook.file, strength=strength) for hook, strength in strengths if strength
    )


def add_hooked(
    node: Lowering, guides: Guides, evaluation: Evaluation, args: Args, model: ModelRef
) -> dict[str, Value | ParamValue]:
    """Add a node for each set of hooks that changes `model`; what the denoiser is given of it.

    `args` is what the denoiser's node of this evaluation gets.
    """
    given: dict[str, Value | ParamValue] = {}
    sampling = sampling_of(str(args["family"]), str(args.get("model_sampling", "")))
    for index, one in enumerate(guides.hooks):
        sigma = evaluation.sigma
        patches = patches_of((hook, _strength(hook, sigma, sampling)) for hook in one.hooks)
        if patches:
            (given[f"estimates_{len(given)}"],) = node.add(
                "denoise_hooked",
                {**args, **one.markers},
                part=f"eval-{evaluation.index}-hooks-{index}",
                model=msgspec.structs.replace(model, patches=(*model.patches, *patches)),
            )
    return given


def _strength(hook: Hook, sigma: float, sampling: ModelSampling) -> float:
    """That of the last keyframe that has begun; before the first one, of the first."""
    keyframes = hook.timing.keyframes
    if not keyframes:
        return hook.strength_model
    num_begun = bisect_right(
        keyframes, -sigma, key=lambda k: -sampling.percent_to_sigma(k.start_percent)
    )
    counting = keyframes[num_begun - 1 if num_begun else 0]
    return hook.strength_model * counting.strength
