"""ControlNet nodes' bodies: which calls are steered, with which hint, and how strongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import torch
from kit.op_calls import run_op
from nodeloom.graph_import import types
from nodeloom.graph_import.handles import FileIdentity, ModelKey, ModelRef, Role
from nodeloom.graph_import.model import Model
from nodeloom.graph_import.sampling.base import SamplerState
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.sampling.noise import sampler_generator
from nodeloom.runtime.values import (
    CallResiduals,
    CondEntry,
    Conditioning,
    Residuals,
    SamplingRun,
    flatten,
    unflatten,
)

SIGMAS = (10.0, 3.0, 0.0)
RUN = {"sampler": "euler", "sigmas": SIGMAS, "family": "sd15", "evaluation": 0, "cfg": 5.0}


class Recorder(Model):
    """A ControlNet or a denoiser of a test: it keeps its calls and answers with their context."""

    def __init__(self, role: Role) -> None:
        file = FileIdentity(path="toy", size_bytes=0, mtime_ns=0)
        super().__init__(
            ModelRef(key=ModelKey(role=role, family="sd15", file=file, dtype="float32"))
        )
        self.calls: list[dict[str, Any]] = []

    def setup_io(self) -> None:
        self.add_input("x", types.LATENT)

    def load(self, device: str, check: object = None) -> None:
        """It has no weights."""

    def execute(self, **inputs: Any) -> Mapping[str, object]:
        self.calls.append(inputs)
        x, value = inputs["x"], inputs["context"].mean()
        if self.ref.key.role is Role.DENOISER:
            return {"denoised": torch.zeros_like(x)}
        tensor = torch.full_like(x, float(value))
        return {"residuals": CallResiduals(blocks=(tensor, tensor + 1, tensor + 2))}


def entry(value: float, *controls: str, **more: Any) -> CondEntry:
    return CondEntry(cond=torch.full((1, 4, 8), value), pooled=None, controls=controls, **more)


def side(*entries: CondEntry) -> Conditioning:
    return Conditioning(entries=entries)


def state(num_items: int = 1, height: int = 8, width: int = 8) -> SamplingRun:
    x = torch.zeros(num_items, 4, height, width)
    return SamplingRun(state=SamplerState(x=x), generator=sampler_generator(1))


def steer(
    model: Recorder, positive: Conditioning, negative: Conditioning, **more: Any
) -> Residuals:
    args = {
        **RUN,
        "state": state(),
        "positive": positive,
        "negative": negative,
        "hint": torch.zeros(1, 64, 64, 3),
        "strength": 1.0,
        "marker": "m",
        **more,
    }
    (given,) = run_op("controlnet", args, model=model).outputs
    assert isinstance(given, Residuals)
    return given


def denoise(positive: Conditioning, negative: Conditioning, **residuals: Any) -> list[Any]:
    """The residuals that the denoiser was given, by call."""
    model = Recorder(Role.DENOISER)
    args = {**RUN, "state": state(), "positive": positive, "negative": negative, **residuals}
    run_op("denoise", args, model=model)
    return [call.get("residuals") for call in model.calls]


def test_every_entry_gets_the_marker_behind_those_it_has() -> None:
    given = side(entry(1.0), entry(2.0, "a"))
    (marked,) = run_op("cond_control", {"conditioning": given, "marker": "b"}).outputs
    assert isinstance(marked, Conditioning)
    assert [item.controls for item in marked.entries] == [("b",), ("a", "b")]
    assert [item.controls for item in given.entries] == [(), ("a",)]


def test_only_marked_calls_are_evaluated_at_their_position_in_the_plan() -> None:
    model = Recorder(Role.CONTROLNET)
    given = steer(
        model, side(entry(1.0), entry(2.0, "m")), side(entry(3.0, "other"), entry(4.0, "m"))
    )
    assert [None if one is None else one.blocks[-1][0, 0, 0, 0].item() for one in given.calls] == [
        None,  # negative entries first
        6.0,
        None,
        4.0,
    ]
    assert len(model.calls) == 2


def test_at_a_scale_of_one_the_negative_side_is_not_evaluated() -> None:
    model = Recorder(Role.CONTROLNET)
    given = steer(model, side(entry(1.0, "m")), side(entry(2.0, "m")), cfg=1.0)
    assert len(given.calls) == len(model.calls) == 1


def test_strength_multiplies_every_residual() -> None:
    given = steer(Recorder(Role.CONTROLNET), side(entry(1.0, "m")), side(), strength=0.5)
    assert given.calls[0] is not None
    assert [t[0, 0, 0, 0].item() for t in given.calls[0].blocks] == [
        0.5,
        1.0,
        1.5,
    ]


def test_no_strength_asks_nothing_of_the_model() -> None:
    model = Recorder(Role.CONTROLNET)
    assert steer(model, side(entry(1.0, "m")), side(), strength=0.0).calls == ()
    assert model.calls == []


def test_the_hint_is_cropped_to_the_latents_aspect_and_resized_without_mixing() -> None:
    hint = torch.zeros(1, 100, 200, 3)
    hint[:, :, 50:150] = torch.rand(1, 100, 100, 3)
    model = Recorder(Role.CONTROLNET)
    steer(model, side(entry(1.0, "m")), side(), hint=hint, state=state(2, 4, 4))
    (call,) = model.calls
    assert call["hint"].shape == (2, 3, 32, 32)
    square = hint[:, :, 50:150].movedim(3, 1)
    expected = torch.nn.functional.interpolate(square, (32, 32), mode="nearest-exact")
    assert torch.equal(call["hint"], expected.repeat(2, 1, 1, 1))


def test_an_area_gets_the_hint_at_its_own_size() -> None:
    area = ("latent", 4.0, 6.0, 2.0, 1.0)
    model = Recorder(Role.CONTROLNET)
    steer(model, side(entry(1.0, "m", area=area), entry(1.0)), side(entry(0.0)))
    assert {tuple(call["x"].shape[-2:]) for call in model.calls} == {(4, 6)}
    assert {tuple(call["hint"].shape[-2:]) for call in model.calls} == {(32, 48)}


def test_a_batch_of_hints_goes_to_a_batch_of_latents_over_and_over() -> None:
    hint = torch.stack([torch.full((64, 64, 3), value) for value in (0.25, 0.75)])
    model = Recorder(Role.CONTROLNET)
    steer(model, side(entry(1.0, "m")), side(), hint=hint, state=state(3))
    assert model.calls[0]["hint"][:, 0, 0, 0].tolist() == [0.25, 0.75, 0.25]


def test_a_hint_with_alpha_fails_the_node() -> None:
    with pytest.raises(NodeFailed, match="must have 3 channels, not 4"):
        steer(
            Recorder(Role.CONTROLNET), side(entry(1.0, "m")), side(), hint=torch.zeros(1, 8, 8, 4)
        )


def test_a_call_gets_the_sum_of_its_entrys_controlnets_in_their_order() -> None:
    positive, negative = side(entry(1.0, "a", "b", "a")), side(entry(2.0, "b"))
    a = steer(Recorder(Role.CONTROLNET), positive, negative, marker="a", strength=0.1)
    b = steer(Recorder(Role.CONTROLNET), positive, negative, marker="b", strength=0.7)
    of_negative, of_positive = denoise(
        positive, negative, marker_0="a", residuals_0=lambda: a, marker_1="b", residuals_1=b
    )
    assert b.calls[0] is not None
    assert torch.equal(of_negative().blocks[-1], b.calls[0].blocks[-1])
    assert a.calls[1] is not None
    assert b.calls[1] is not None
    twice, once = (one.calls[1].blocks[-1] for one in (a, b))
    assert torch.equal(of_positive().blocks[-1], twice + once + twice)
    assert len(of_positive().blocks) == 3


def test_residuals_are_fetched_only_when_the_model_asks() -> None:
    def never() -> Residuals:
        raise AssertionError("fetched before it was needed")

    asked, plain = denoise(side(entry(1.0)), side(entry(2.0, "a")), marker_0="a", residuals_0=never)
    assert plain is None
    with pytest.raises(AssertionError, match="before it was needed"):
        asked()


def test_an_entry_whose_controlnet_is_not_active_is_not_steered() -> None:
    assert denoise(side(entry(1.0, "a")), side(entry(2.0))) == [None, None]


def test_residuals_of_no_strength_add_nothing() -> None:
    given = denoise(side(entry(1.0, "a")), side(), marker_0="a", residuals_0=Residuals(calls=()))
    assert given[0]() is None


def test_residuals_survive_the_way_between_executors() -> None:
    given = steer(Recorder(Role.CONTROLNET), side(entry(1.0)), side(entry(2.0, "m")))
    tree, tensors = flatten(given)
    same = unflatten(tree, tensors)
    assert isinstance(same, Residuals)
    assert same.calls[0] is not None
    assert given.calls[0] is not None
    assert msgspec.structs.astuple(same.calls[0]) == msgspec.structs.astuple(given.calls[0])
