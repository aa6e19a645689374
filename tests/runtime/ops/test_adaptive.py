"""The node that is a whole run: it can be cancelled between evaluations, and fails in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from kit.toy_denoiser import ToyDenoiser, steer
from nodeloom.graph_import.model import Model
from nodeloom.graph_import.sampling.samplers import sampler_text
from nodeloom.runtime.errors import Cancelled, NodeFailed
from nodeloom.runtime.ops.adaptive import sample_adaptive
from nodeloom.runtime.ops.base import OpCall
from nodeloom.runtime.values import SamplingRun

from ..sampling.sampling_ops import KSampler, call, context, never_cancelled, run_of

SIGMAS = (14.6, 5.0, 1.0, 0.1, 0.0)


def adaptive(**options: float) -> OpCall:
    """A call that samples 4 x 4 latents."""
    text = sampler_text("dpm_adaptive", **options)
    node = KSampler(text, SIGMAS, 7, 4.0, steer(0.4), steer(-0.25), torch.zeros(1, 4, 4, 4))
    args = {"state": node.begin(), "positive": node.positive, "negative": node.negative}
    return call({**args, "cfg": 4.0, "sampler": text, "sigmas": SIGMAS, "family": "sd15"})


def sampled(
    model: Model, asked: OpCall, check: Callable[[], None] = never_cancelled
) -> SamplingRun:
    (result,) = sample_adaptive(replace(context(model), check_cancelled=check), [asked])
    return run_of(result)


class BrokenDenoiser(ToyDenoiser):
    """Its estimates are no numbers from the tenth call on."""

    def execute(self, **inputs: Any) -> Mapping[str, object]:
        result = super().execute(**inputs)
        x = inputs["x"]
        return result if len(self.sigmas) < 10 else {"denoised": torch.full_like(x, math.nan)}


def test_a_second_attempt_has_the_same_noise() -> None:
    asked = adaptive(eta=0.5)
    once, again = sampled(ToyDenoiser(), asked), sampled(ToyDenoiser(), asked)
    assert torch.equal(once.state.x, again.state.x)
    assert not torch.equal(once.state.x, sampled(ToyDenoiser(), adaptive()).state.x)


def test_it_is_cancelled_between_two_evaluations() -> None:
    model = ToyDenoiser()

    def check() -> None:
        if len(model.sigmas) >= 6:
            raise Cancelled("interrupted")

    with pytest.raises(Cancelled):
        sampled(model, adaptive(), check)
    assert len(model.sigmas) == 6


def test_estimates_that_are_no_numbers_fail_the_node_soon() -> None:
    model = BrokenDenoiser()
    with pytest.raises(NodeFailed, match="no length at sigma") as caught:
        sampled(model, adaptive())
    assert caught.value.details["node_id"] == "3"
    assert len(model.sigmas) < 400


def test_a_tolerance_that_asks_for_too_many_evaluations_fails_the_node() -> None:
    with pytest.raises(NodeFailed, match="more than 10000 evaluations"):
        sampled(ToyDenoiser(), adaptive(accept_safety=50.0))
