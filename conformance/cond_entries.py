"""Entries of conditionings as the goldens have them, read as ours and compared with ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from nodeloom.runtime.values import CondDetails, CondEntry, Conditioning

from .case import Outcome, close, equal, worst

Tensors = Mapping[str, torch.Tensor]

OWN: Final = {
    "pooled_output": "pooled",
    "strength": "strength",
    "mask": "mask",
    "mask_strength": "mask_strength",
    "set_area_to_bounds": "is_mask_bounds",
    "start_percent": "start_percent",
    "end_percent": "end_percent",
    "concat_latent_image": "concat_latent",
    "default": "is_default",
}
DETAILS: Final = {
    "reference_latents_method": "reference_method",
    "noise_augmentation": "noise_augmentation",
    "concat_image": "concat_image",
    "frame_rate": "frame_rate",
    "stable_cascade_prior": "cascade_prior",
}
OTHERS: Final = frozenset({"tag"})  # the recording's own, to see that unknown names are kept


def entry_of(cond: torch.Tensor, extra: Mapping[str, Any]) -> CondEntry:
    """A recorded entry as ours. Raises: KeyError: it has something that is not known here."""
    own: dict[str, Any] = {"cond": cond, "pooled": None}
    details: dict[str, Any] = {}
    for name, value in extra.items():
        match name:
            case "area":
                own["area"] = tuple(value) if value[0] == "percentage" else ("latent", *value)
            case "guidance":
                details |= {"guidance": value, "is_guidance_off": value is None}
            case "reference_latents":
                details[name] = tuple(value)
            case _ if name in DETAILS:
                details[DETAILS[name]] = value
            case _ if name not in OTHERS:
                own[OWN[name]] = value
    return CondEntry(**own, more=CondDetails(**details))


def listed(tensors: Tensors, entries: Sequence[Mapping[str, Any]]) -> Conditioning:
    """The form of conds.json: `{cond: key, extra: {name: value or {tensor: key}}}`."""
    return Conditioning(
        entries=tuple(
            entry_of(
                tensors[entry["cond"]],
                {
                    name: tensors[value["tensor"]] if isinstance(value, Mapping) else value
                    for name, value in entry["extra"].items()
                },
            )
            for entry in entries
        )
    )


def wrapped(tensors: Any, recorded: Mapping[str, Any]) -> Conditioning:
    """The form of nodes.json: lists, dicts, values and tensors inside one another."""
    return Conditioning(entries=tuple(entry_of(*pair) for pair in _unwrapped(tensors, recorded)))


def conditioning_outcome(ours: object, theirs: Conditioning, tolerance: float) -> Outcome:
    """How far entries are from the recorded ones, field by field."""
    if not isinstance(ours, Conditioning) or len(ours.entries) != len(theirs.entries):
        return equal(type(ours).__name__, f"{len(theirs.entries)} entries")
    return worst(
        [
            _outcome(mine, its, tolerance)
            for mine, its in zip(ours.entries, theirs.entries, strict=True)
        ]
    )


def _outcome(ours: Any, theirs: Any, tolerance: float) -> Outcome:
    match ours, theirs:
        case (torch.Tensor(), torch.Tensor()):
            return close(ours, theirs, tolerance)
        case (tuple(), tuple()) if ours and len(ours) == len(theirs):
            pairs = zip(ours, theirs, strict=True)
        case (CondEntry(), CondEntry()) | (CondDetails(), CondDetails()):
            names = ours.__struct_fields__
            pairs = zip(*([getattr(one, n) for n in names] for one in (ours, theirs)), strict=True)
        case _:
            return equal(ours, theirs)
    return worst([_outcome(mine, its, tolerance) for mine, its in pairs])


def _unwrapped(tensors: Any, recorded: Mapping[str, Any]) -> Any:
    match recorded:
        case {"list": items}:
            return [_unwrapped(tensors, item) for item in items]
        case {"dict": items}:
            return {name: _unwrapped(tensors, item) for name, item in items.items()}
        case {"tensor": key}:
            return tensors.get_tensor(key)
        case {"shape": shape, "constant": value}:
            return torch.full(shape, value)
        case {"value": value}:
            return value
        case _:
            raise KeyError(str(recorded))
