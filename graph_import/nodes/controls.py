"""ControlNets where a conditioning is sampled with: a DAG node for each evaluation that they steer.

Its residuals go to the denoiser over a deferred edge, so that on another executor both run at once.
Source: LegoDiffusion (arXiv 2604.08123), section 4.3.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from ..families import sampling_of
from ..handles import ModelRef
from ..ir import Edge, EdgeKind, ParamValue
from ..sampling.base import Evaluation
from ..sampling.guiders import GuiderKind
from ..sampling.model_sampling import ModelSampling
from .lowering import Control, Lowering, Steering, Value
from .values import Hook

SIGMA_TOLERANCE: Final = 1e-6  # relative: ComfyUI compares float32 numbers

Args = Mapping[str, Value | ParamValue]


@dataclass(slots=True, frozen=True)
class HookSet:
    """Hooks that entries have together, and the arguments that say so to an op."""

    hooks: tuple[Hook, ...]
    markers: Args


@dataclass(slots=True, frozen=True)
class Guides:
    """What guides all evaluations of a run.

    Args:
        args: `positive`, `negative` and `cfg`.
        controls: the ControlNets on either side, each once.
        hooks: the sets of hooks that entries of either side have, each once.
    """

    args: Args
    controls: tuple[Control, ...]
    hooks: tuple[HookSet, ...] = ()

    def with_args(self, more: Args) -> Guides:
        """The same guides, and more that the nodes are told."""
        return Guides({**self.args, **more}, self.controls, self.hooks)


def guides(node: Lowering) -> Guides:
    """The guides of a sampling node. Raises: InputRefused: a ControlNet is of another family."""
    model, sides = node.handle("model"), (node.steering("positive"), node.steering("negative"))
    own = model.perp_neg
    if own is None:
        return guided_by(node, model.ref, *sides, node.inputs["cfg"])
    guided = guided_by(node, model.ref, *sides, node.inputs["cfg"], third=own.empty)
    return guided.with_args({"guider": str(GuiderKind.PERP_NEG), "cfg_third": own.scale})


def guided_by(
    node: Lowering,
    model: ModelRef,
    positive: Steering,
    negative: Steering,
    cfg: Value,
    third: Steering | None = None,
) -> Guides:
    """What guides `model`. Raises: InputRefused: a ControlNet is of another family."""
    if not negative.controls:
        negative = _with_those_for_both(node, positive, negative)
    sides = (positive, negative, *(() if third is None else (third,)))
    controls = {c.marker: c for side in sides for c in side.controls}
    for control in controls.values():
        if control.model.key.family != model.key.family:
            raise node.refusal(
                "positive",
                f"{control.model.key.label()} can't steer {model.key.label()}: "
                "they are of different families",
            )
    args: dict[str, Value | ParamValue] = {"positive": positive, "negative": negative, "cfg": cfg}
    if third is not None:
        args["third"] = third
    hooks = dict.fromkeys(hooks for side in sides for hooks in side.hooks if hooks)
    sets = tuple(HookSet(one, markers(one)) for one in hooks)
    return Guides(args, tuple(controls.values()), sets)


def markers(hooks: tuple[Hook, ...]) -> Args:
    """The arguments that tell an op of `hooks`."""
    return {f"hook_{index}": hook.marker for index, hook in enumerate(hooks)}


def add_controls(
    node: Lowering, guides: Guides, evaluation: Evaluation, args: Args, latent: Edge
) -> dict[str, Value | ParamValue]:
    """Add a node for each ControlNet that is active; what the denoiser is given of it.

    `args` is what the denoiser's node of this evaluation gets, `guides.args` included; `latent` is
    what the run started from.
    """
    given: dict[str, Value | ParamValue] = {}
    sampling = sampling_of(str(args["family"]), str(args.get("model_sampling", "")))
    active = [c for c in guides.controls if _is_active(c, evaluation.sigma, sampling)]
    for index, control in enumerate(active):
        part = f"eval-{evaluation.index}-control-{index}"
        (residuals,) = node.add(
            "controlnet",
            {
                **args,
                **_hint(node, control, latent, f"{part}-hint"),
                "strength": control.strength,
                "marker": control.marker,
            },
            part=part,
            model=control.model,
        )
        given[f"residuals_{index}"] = msgspec.structs.replace(residuals, kind=EdgeKind.DEFERRED)
        given[f"marker_{index}"] = control.marker
    return given


def _hint(node: Lowering, control: Control, latent: Edge, part: str) -> Args:
    """What the ControlNet looks at; encoded ones are equal nodes in all evaluations of a run."""
    if control.vae is None:
        return {"hint": control.hint}
    given: Args = {"hint": control.hint, "latent": latent}
    (encoded,) = node.add("encode_hint", given, part=part, model=control.vae)
    return {"hint_latent": encoded}


def _with_those_for_both(node: Lowering, positive: Steering, negative: Steering) -> Steering:
    """The negative side with those ControlNets of the positive one that are for both."""
    for index, control in enumerate(c for c in positive.controls if c.is_for_both_sides):
        marked: Args = {"conditioning": negative, "marker": control.marker}
        (edge,) = node.add("cond_control", marked, part=f"negative-{index}")
        controls = (*negative.controls, control)
        negative = msgspec.structs.replace(negative, edge=edge, controls=controls)
    return negative


def _is_active(control: Control, sigma: float, sampling: ModelSampling) -> bool:
    """Whether `sigma` is in the ControlNet's part of the sampling, both ends included."""
    first = sampling.percent_to_sigma(control.start_percent)
    last = sampling.percent_to_sigma(control.end_percent)
    is_edge = any(math.isclose(sigma, edge, rel_tol=SIGMA_TOLERANCE) for edge in (first, last))
    return last <= sigma <= first or (is_edge and last <= first)
