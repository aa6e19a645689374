"""Nodes that take or give what steers a denoiser: `nodes` of conds.json, and those of nodes.json.

A name that no node class gives an entry (`tag` in the recordings) is kept by ComfyUI; here it is
not, and not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from safetensors.torch import load_file

from .case import Case, Outcome
from .cond_entries import Tensors, conditioning_outcome, listed
from .node_case import Evaluation, compared, recorded_cases, refused, steering_classes

TOLERANCE: Final = 1e-5
AREA: Final = ("width", "height", "x", "y", "strength")
TWO: Final = ("conditioning_to", "conditioning_from")
NUMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "ConditioningSetAreaPercentage": AREA,
    "ConditioningSetAreaStrength": ("strength",),
    "ConditioningSetTimestepRange": ("start", "end"),
}


def cases(goldens: Path) -> Iterator[Case]:
    """Every case of both files, those that ComfyUI answered with an error among them."""
    yield from conds_cases(goldens)
    classes = steering_classes(goldens)
    for name, case in recorded_cases(goldens):
        if case["node"] in classes:
            run = refused if "error" in case else compared
            yield Case(name, partial(run, goldens, case))


def conds_cases(folder: Path) -> Iterator[Case]:
    """Those of the folder's conds.json."""
    recorded = json.loads((folder / "conds.json").read_text("utf-8"))
    tensors = load_file(folder / "conds.safetensors")
    for key, entries in recorded["nodes"].items():
        run = partial(_of_conds, tensors, recorded["inputs"], key, entries)
        yield Case(f"conds/{key}", run)


def _of_conds(tensors: Tensors, inputs: Mapping[str, Any], key: str, entries: list[Any]) -> Outcome:
    class_type, *rest = key.split("/")
    given: dict[str, Any]
    given = {name: listed(tensors, inputs[text]) for name, text in _texts(class_type, rest).items()}
    given |= _more(tensors, class_type, rest)
    ((ours,),) = Evaluation(tensors, class_type).run(given)
    return conditioning_outcome(ours, listed(tensors, entries), TOLERANCE)


def _texts(class_type: str, rest: list[str]) -> dict[str, str]:
    """Which of the recorded texts is on which input."""
    match class_type:
        case "ConditioningCombine":
            return {"conditioning_1": rest[0], "conditioning_2": rest[1]}
        case "ConditioningAverage" | "ConditioningConcat":
            return dict(zip(TWO, rest, strict=False))
        case "ConditioningZeroOut":
            return {"conditioning": rest[0]}
        case _:
            return {"conditioning": "g1"}


def _more(tensors: Tensors, class_type: str, rest: list[str]) -> dict[str, Any]:
    """The other inputs, which are the last part of a case's name."""
    match class_type:
        case "ConditioningSetMask":
            # The mask that was given had no batch; the one that came out has.
            mask = tensors["ConditioningSetMask/2d/default/0/mask"].squeeze(0)
            return {"mask": mask, "strength": 0.7, "set_cond_area": rest[1]}
        case "ConditioningAverage":
            return {"conditioning_to_strength": float(rest[2])}
        case "ConditioningSetArea":
            *sides, strength = rest[0].split("_")
            return dict(zip(AREA, (*map(int, sides), float(strength)), strict=True))
        case _ if class_type in NUMBERS:
            return dict(zip(NUMBERS[class_type], map(float, rest[0].split("_")), strict=True))
        case _:
            return {}
