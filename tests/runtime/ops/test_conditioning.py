"""Conditionings combined and changed, as ComfyUI's nodes do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from kit.goldens import Tensors, each_golden_set, load_json
from kit.op_calls import run_op
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.values import CondEntry, Conditioning

TWO = {
    "ConditioningCombine": ("conditioning_combine", "conditioning_1", "conditioning_2"),
    "ConditioningConcat": ("conditioning_concat", "conditioning_to", "conditioning_from"),
    "ConditioningAverage": ("conditioning_average", "conditioning_to", "conditioning_from"),
}
NOT_OURS = {"ConditioningSetAreaStrength"}


class Recorded:
    """The recorded nodes of one golden set."""

    def __init__(self, golden_set: str) -> None:
        self.json = load_json(golden_set, "conds.json")
        self.tensors = Tensors(golden_set, "conds.safetensors")

    def value(self, entries: list[Any]) -> Conditioning:
        return Conditioning(entries=tuple(map(self._entry, entries)))

    def _entry(self, recorded: Any) -> CondEntry:
        extra = {
            name: self.tensors[value["tensor"]] if isinstance(value, dict) else value
            for name, value in recorded["extra"].items()
        }
        area = extra.get("area")
        if area is not None:
            area = tuple(area) if area[0] == "percentage" else ("latent", *area)
        return CondEntry(
            cond=self.tensors[recorded["cond"]],
            pooled=extra.get("pooled_output"),
            area=area,
            strength=extra.get("strength", 1.0),
            mask=extra.get("mask"),
            mask_strength=extra.get("mask_strength", 1.0),
            is_mask_bounds=extra.get("set_area_to_bounds", False),
            start_percent=extra.get("start_percent", 0.0),
            end_percent=extra.get("end_percent", 1.0),
        )

    def call(self, key: str) -> tuple[str, dict[str, object]]:
        """The op and the arguments of the node that gave the output `key`."""
        node, *rest = key.split("/")
        if node in TWO:
            op, first, second = TWO[node]
            args: dict[str, object] = {first: self._input(rest[0]), second: self._input(rest[1])}
            return op, args | ({"conditioning_to_strength": float(rest[2])} if rest[2:] else {})
        if node == "ConditioningZeroOut":
            return "conditioning_zero_out", {"conditioning": self._input(rest[0])}
        return self._one(node, rest)

    def _one(self, node: str, rest: list[str]) -> tuple[str, dict[str, object]]:
        args: dict[str, object] = {"conditioning": self._input("g1")}
        if node == "ConditioningSetMask":
            mask = self.tensors[f"{node}/2d/default/0/mask"].squeeze(0)
            shape = {"mask": mask, "strength": 0.7, "set_cond_area": rest[1]}
            return "conditioning_set_mask", args | shape
        numbers = [float(number) for number in rest[0].split("_")]
        if node == "ConditioningSetTimestepRange":
            named = dict(zip(("start", "end"), numbers, strict=True))
            return "conditioning_set_timestep_range", args | named
        is_share = node == "ConditioningSetAreaPercentage"
        sides = zip(("width", "height", "x", "y"), numbers[:4], strict=True)
        area = {name: number if is_share else int(number) for name, number in sides}
        op = f"conditioning_set_area{'_percentage' if is_share else ''}"
        return op, args | area | {"strength": numbers[4]}

    def _input(self, name: str) -> Conditioning:
        return self.value(self.json["inputs"][name])


def assert_equal(ours: Conditioning, theirs: Conditioning, what: str) -> None:
    assert len(ours.entries) == len(theirs.entries), what
    for our, their in zip(ours.entries, theirs.entries, strict=True):
        for name in CondEntry.__struct_fields__:
            got, wanted = getattr(our, name), getattr(their, name)
            if isinstance(wanted, torch.Tensor):
                assert got.shape == wanted.shape, (what, name)
                assert (got - wanted).abs().max().item() <= 1e-5, (what, name)
            else:
                assert got == wanted, (what, name)


@each_golden_set
def test_every_recorded_node(golden_set: str) -> None:
    recorded = Recorded(golden_set)
    keys = [key for key in recorded.json["nodes"] if key.split("/")[0] not in NOT_OURS]
    assert {key.split("/")[0] for key in keys} == {
        *TWO,
        "ConditioningZeroOut",
        "ConditioningSetArea",
        "ConditioningSetAreaPercentage",
        "ConditioningSetMask",
        "ConditioningSetTimestepRange",
    }
    for key in keys:
        op, args = recorded.call(key)
        (ours,) = run_op(op, args).outputs
        assert isinstance(ours, Conditioning)
        assert_equal(ours, recorded.value(recorded.json["nodes"][key]), key)


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
