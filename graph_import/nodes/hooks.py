"""Node classes that make HOOKS: LoRAs for some entries of a conditioning, and when they count.

Files, strengths and times shape the DAG, so they must be known when a node is lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from ..errors import ModelFileProblem
from ..types import CLIP
from .base import NodeClass
from .hooked import MAX_HOOKS, patches_of, together
from .lora import LORAS, LoraClass, with_patches
from .lowering import Lowering, Value
from .schema import InputSpec, NodeSchema, combo, integer, number, ports, socket, switch
from .tabled import node_class
from .values import Hook, HookKeyframe, HooksValue, KeyframesValue

HOOKS: Final = "HOOKS"
HOOK_KEYFRAMES: Final = "HOOK_KEYFRAMES"
MODULE: Final = "comfy_extras.nodes_hooks"
MAX_KEYFRAMES: Final = 1024
WHOLE: Final = HookKeyframe(start_percent=0.0, strength=1.0)
EASINGS: Final[Mapping[str, Callable[[float], float]]] = MappingProxyType(
    {
        "linear": lambda share: share,
        "ease_in": lambda share: share * share,
        "ease_out": lambda share: 1.0 - (1.0 - share) ** 2,
        "ease_in_out": lambda share: share * share * (3.0 - 2.0 * share),
    }
)
_PREVIOUS: Final = InputSpec(name="prev_hooks", type=HOOKS, is_required=False)
_PREVIOUS_KEYFRAMES: Final = InputSpec(name="prev_hook_kf", type=HOOK_KEYFRAMES, is_required=False)


def hooks_on(node: Lowering, name: str) -> tuple[Hook, ...]:
    """The hooks on input `name`; none where nothing is. Raises: InputRefused."""
    match node.inputs.get(name):
        case None:
            return ()
        case HooksValue(hooks=hooks):
            return hooks
        case _:
            raise node.refusal(name, "HOOKS were expected")


def _strength(name: str) -> InputSpec:
    return number(name, default=1.0, min=-20.0, max=20.0, step=0.01)


def _share(name: str, default: float) -> InputSpec:
    return number(name, default=default, min=0.0, max=1.0, step=0.001)


class CreateHookLora(LoraClass):
    """A LoRA for some entries; its strength on the text encoder counts where the encoder has it."""

    schema = NodeSchema(
        class_type="CreateHookLora",
        display_name="Create Hook LoRA",
        category="advanced/hooks/create",
        python_module=MODULE,
        inputs=(
            combo("lora_name", LORAS, None),
            _strength("strength_model"),
            _strength("strength_clip"),
            _PREVIOUS,
        ),
        outputs=ports(HOOKS=HOOKS),
        is_experimental=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        names = [item.name for item in self.schema.inputs if item.is_required]
        node.require(*names)
        strengths = [node.number(name) for name in names[1:]]
        return (_lora_hook(node, *strengths),)


class CreateHookLoraModelOnly(CreateHookLora):
    """A LoRA of the denoiser alone for some entries."""

    schema = NodeSchema(
        class_type="CreateHookLoraModelOnly",
        display_name="Create Hook LoRA (MO)",
        category="advanced/hooks/create",
        python_module=MODULE,
        inputs=(combo("lora_name", LORAS, None), _strength("strength_model"), _PREVIOUS),
        outputs=ports(HOOKS=HOOKS),
        is_experimental=True,
    )


def _lora_hook(node: Lowering, strength_model: float, strength_clip: float = 0.0) -> HooksValue:
    """The hooks before, and this LoRA; without it if it has no strength."""
    before = hooks_on(node, "prev_hooks")
    if not strength_model and not strength_clip:
        return HooksValue(hooks=before)
    try:
        file = node.catalog.file(LORAS.kind, node.text("lora_name"))
    except ModelFileProblem as problem:
        raise node.refusal("lora_name", problem.message) from problem
    node.add_patch(file)
    hook = Hook(file=file, strength_model=strength_model, strength_clip=strength_clip)
    return _limited(node, "prev_hooks", before, (hook,))


def _limited(node: Lowering, name: str, *groups: tuple[Hook, ...]) -> HooksValue:
    """All of these hooks, equal ones once. Raises: InputRefused: there are too many."""
    hooks = together(*groups)
    if len(hooks) > MAX_HOOKS:
        raise node.refusal(name, f"{len(hooks)} hooks are too many: {MAX_HOOKS} are possible")
    return HooksValue(hooks=hooks)


def _combining(count: int) -> type[NodeClass]:
    names = [f"hooks_{letter}" for letter in "ABCDEFGH"[:count]]
    schema = NodeSchema(
        class_type=f"CombineHooks{count}",
        display_name=f"Combine Hooks [{count}]",
        category="advanced/hooks/combine",
        python_module=MODULE,
        inputs=tuple(InputSpec(name=name, type=HOOKS, is_required=False) for name in names),
        outputs=ports(HOOKS=HOOKS),
        is_experimental=True,
    )
    return node_class(
        schema,
        lambda node: (_limited(node, names[-1], *(hooks_on(node, name) for name in names)),),
        "All hooks together.",
    )


def _timed(node: Lowering) -> tuple[Value, ...]:
    """Every hook with these keyframes in place of its own."""
    hooks = hooks_on(node, "hooks")
    if node.inputs.get("hook_kf") is None:
        return (HooksValue(hooks=hooks),)
    timing = _timing_on(node, "hook_kf")
    timed = tuple(msgspec.structs.replace(hook, timing=timing) for hook in hooks)
    return (_limited(node, "hooks", timed),)


def _keyframe(node: Lowering) -> tuple[Value, ...]:
    node.require("strength_mult", "start_percent")
    start, strength = node.number("start_percent"), node.number("strength_mult")
    return (_sorted(node, [HookKeyframe(start_percent=start, strength=strength)]),)


def _interpolated(node: Lowering) -> tuple[Value, ...]:
    """Keyframes at equal distances, their strengths along an easing."""
    numbers = ("strength_start", "strength_end", "start_percent", "end_percent")
    node.require(*numbers, "interpolation", "keyframes_count")
    strength, last_strength, start, end = (node.number(name) for name in numbers)
    ease, count = EASINGS[node.text("interpolation")], node.integer("keyframes_count")
    shares = [index / (count - 1) for index in range(count)]
    return (
        _sorted(
            node,
            [
                HookKeyframe(
                    start_percent=start + (end - start) * share,
                    strength=strength + (last_strength - strength) * ease(share),
                )
                for share in shares
            ],
        ),
    )


def _timing_on(node: Lowering, name: str) -> KeyframesValue:
    match node.inputs.get(name):
        case None:
            return KeyframesValue()
        case KeyframesValue() as timing:
            return timing
        case _:
            raise node.refusal(name, "HOOK_KEYFRAMES were expected")


def _sorted(node: Lowering, new: list[HookKeyframe]) -> KeyframesValue:
    """The keyframes before and the new ones; of two that begin together the newer counts."""
    before = _timing_on(node, "prev_hook_kf").keyframes
    by_start = {k.start_percent: k for k in (*before, *new)}
    if len(by_start) > MAX_KEYFRAMES:
        reason = f"{len(by_start)} keyframes are too many: {MAX_KEYFRAMES} are possible"
        raise node.refusal("prev_hook_kf", reason)
    return KeyframesValue(keyframes=tuple(by_start[start] for start in sorted(by_start)))


class SetClipHooks(NodeClass):
    """Hooks on a text encoder: their LoRAs patch it, and they hang on the texts that it encodes.

    Keyframes don't encode a text anew: what counts for the encoder is the first one.
    """

    schema = NodeSchema(
        class_type="SetClipHooks",
        display_name="Set CLIP Hooks",
        category="advanced/hooks/clip",
        python_module=MODULE,
        inputs=(
            socket("clip", CLIP, is_bare=True),
            switch("apply_to_conds", default=True),
            switch("schedule_clip", default=False),
            InputSpec(name="hooks", type=HOOKS, is_required=False),
        ),
        outputs=ports(CLIP=CLIP),
        is_experimental=True,
    )

    def lower(self, node: Lowering) -> tuple[Value, ...]:
        node.require("apply_to_conds", "schedule_clip")
        encoder, hooks = node.handle("clip"), hooks_on(node, "hooks")
        timings = {hook.timing for hook in hooks}
        is_scheduled = any(len({k.strength for k in one.keyframes}) > 1 for one in timings)
        if node.constant("schedule_clip") and is_scheduled:
            reason = "texts are encoded once: a text encoder's LoRA can't change while sampling"
            raise node.refusal("schedule_clip", reason)
        strengths = [
            (hook, hook.strength_clip * first.strength)
            for hook in hooks
            for first in hook.timing.keyframes[:1] or (WHOLE,)
        ]
        hung = encoder.hooks
        if node.constant("apply_to_conds"):
            hung = _limited(node, "hooks", hung, hooks).hooks
        under = encoder.on(with_patches(node, "hooks", encoder.ref, *patches_of(strengths)))
        return (msgspec.structs.replace(under, hooks=hung),)


def _scheduling(
    class_type: str,
    title: str,
    inputs: tuple[InputSpec, ...],
    lower: Callable[[Lowering], tuple[Value, ...]],
    doc: str,
    **outputs: str,
) -> type[NodeClass]:
    schema = NodeSchema(
        class_type=class_type,
        display_name=title,
        category="advanced/hooks/scheduling",
        python_module=MODULE,
        inputs=inputs,
        outputs=ports(**outputs),
        is_experimental=True,
    )
    return node_class(schema, lower, doc)


NODES: Final[tuple[type[NodeClass], ...]] = (
    CreateHookLora,
    CreateHookLoraModelOnly,
    SetClipHooks,
    *(_combining(count) for count in (2, 4, 8)),
    _scheduling(
        "SetHookKeyframes",
        "Set Hook Keyframes",
        (
            socket("hooks", HOOKS, is_bare=True),
            InputSpec(name="hook_kf", type=HOOK_KEYFRAMES, is_required=False),
        ),
        _timed,
        "Says when hooks count, and how strongly.",
        HOOKS=HOOKS,
    ),
    _scheduling(
        "CreateHookKeyframe",
        "Create Hook Keyframe",
        (_strength("strength_mult"), _share("start_percent", 0.0), _PREVIOUS_KEYFRAMES),
        _keyframe,
        "How strongly hooks count from a point of the sampling on.",
        HOOK_KF=HOOK_KEYFRAMES,
    ),
    _scheduling(
        "CreateHookKeyframesInterpolated",
        "Create Hook Keyframes Interp.",
        (
            *(
                number(name, default=1.0, min=0.0, max=10.0, step=0.001)
                for name in ("strength_start", "strength_end")
            ),
            combo("interpolation", tuple(EASINGS), None),
            _share("start_percent", 0.0),
            _share("end_percent", 1.0),
            integer("keyframes_count", default=5, min=2, max=100, step=1),
            switch("print_keyframes", default=False),
            _PREVIOUS_KEYFRAMES,
        ),
        _interpolated,
        "Keyframes from one strength to another; they are not printed.",
        HOOK_KF=HOOK_KEYFRAMES,
    ),
)
