"""Conditionings combined and changed, as ComfyUI's nodes do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from kit.goldens import each_golden_set, golden_folder
from kit.op_calls import run_op
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.values import CondEntry, Conditioning

from conformance.cond_nodes import conds_cases


@each_golden_set
def test_every_recorded_node(golden_set: str) -> None:
    """Lowered, and run."""
    outcomes = {case.name: case.run() for case in conds_cases(golden_folder(golden_set))}
    assert {name: o for name, o in outcomes.items() if not o.passes} == {}
    assert {name.split("/")[1].removeprefix("Conditioning") for name in outcomes} == {
        "Average",
        "Combine",
        "Concat",
        "SetArea",
        "SetAreaPercentage",
        "SetAreaStrength",
        "SetMask",
        "SetTimestepRange",
        "ZeroOut",
    }


def steer(width: int, **fields: Any) -> Conditioning:
    return Conditioning(
        entries=(CondEntry(cond=torch.ones(1, 77, width), pooled=torch.ones(1, width), **fields),)
    )


CHANGES: Mapping[str, Mapping[str, object]] = {
    "average": {
        "conditioning_to": steer(8, controls=("a", "b")),
        "conditioning_from": steer(8, controls=("c",)),
        "conditioning_to_strength": 0.5,
    },
    "concat": {
        "conditioning_to": steer(8, controls=("a", "b")),
        "conditioning_from": steer(8, controls=("c",)),
    },
    "zero_out": {"conditioning": steer(8, controls=("a", "b"))},
    "set_timestep_range": {
        "conditioning": steer(8, controls=("a", "b")),
        "start": 0.0,
        "end": 1,
    },
}


@pytest.mark.parametrize("op", CHANGES)
def test_controls_stay_on_their_entries(op: str) -> None:
    (changed,) = run_op(f"conditioning_{op}", CHANGES[op]).outputs
    assert isinstance(changed, Conditioning)
    assert [entry.controls for entry in changed.entries] == [("a", "b")]


@pytest.mark.parametrize("op", ["average", "concat"])
def test_texts_of_different_encoders_do_not_mix(op: str) -> None:
    args = {**CHANGES[op], "conditioning_from": steer(16)}
    with pytest.raises(NodeFailed, match="different text encoders"):
        run_op(f"conditioning_{op}", args)


def test_a_conditioning_without_entries_has_nothing_to_mix_in() -> None:
    args = {**CHANGES["average"], "conditioning_from": Conditioning(entries=())}
    with pytest.raises(NodeFailed, match="conditioning_from has no text"):
        run_op("conditioning_average", args)


@pytest.mark.parametrize(("op", "num_nodes"), [("combine", 11), ("concat", 9)])
def test_doubling_ends_at_the_limit(op: str, num_nodes: int) -> None:
    first, second = {
        "combine": ("conditioning_1", "conditioning_2"),
        "concat": ("conditioning_to", "conditioning_from"),
    }[op]
    conditioning = steer(8)
    for _ in range(num_nodes - 1):
        (grown,) = run_op(f"conditioning_{op}", {first: conditioning, second: conditioning}).outputs
        assert isinstance(grown, Conditioning)
        conditioning = grown
    with pytest.raises(NodeFailed, match="too large"):
        run_op(f"conditioning_{op}", {first: conditioning, second: conditioning})


def test_a_mask_must_be_masks() -> None:
    args = {"mask": torch.ones(1, 3, 4, 4), "strength": 1.0, "set_cond_area": "default"}
    with pytest.raises(NodeFailed, match="mask must be masks"):
        run_op("conditioning_set_mask", args | {"conditioning": steer(8)})
