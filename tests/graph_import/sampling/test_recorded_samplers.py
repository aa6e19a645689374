"""Every sampler against ComfyUI's latents: the last ones, those at every step, and the sigmas."""

from __future__ import annotations

import pytest
from kit.conforming import failures
from kit.goldens import each_golden_set

from conformance import sampler_nodes, samplers


@each_golden_set
@pytest.mark.filterwarnings("ignore::UserWarning")  # torchsde warns of a step below its rounding
def test_recorded_runs(golden_set: str) -> None:
    count, failed = failures(samplers.cases, golden_set)
    assert count >= 80
    assert failed == []


@each_golden_set
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_runs_of_nodes(golden_set: str) -> None:
    count, failed = failures(sampler_nodes.cases, golden_set)
    assert count >= 24
    assert failed == []


@each_golden_set
def test_the_stochastic_adams_node(golden_set: str) -> None:
    count, failed = failures(sampler_nodes.cases, golden_set, "SamplerSASolver")
    assert count == 10
    assert failed == []
