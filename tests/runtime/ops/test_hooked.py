"""Calls under hooks run on another model; what it gives stands in for the denoiser's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from kit.op_calls import run_op
from kit.toy_denoiser import ToyDenoiser
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.schedules import ksampler_sigmas
from nodeloom.runtime.values import (
    CondDetails,
    CondEntry,
    Conditioning,
    Estimates,
    SamplingRun,
    flatten,
    unflatten,
)

from ..sampling.sampling_ops import KSampler

AREA = ("latent", 4, 4, 0, 0)


class Doubled(ToyDenoiser):
    """The toy denoiser under a LoRA that doubles its estimates."""

    def execute(self, **inputs: Any) -> Mapping[str, object]:
        denoised = super().execute(**inputs)["denoised"]
        assert isinstance(denoised, torch.Tensor)
        return {"denoised": 2.0 * denoised}


def entry(value: float, *hooks: str, **more: Any) -> CondEntry:
    return CondEntry(cond=torch.full((1, 4, 8), value), pooled=None, hooks=hooks, **more)


def a_run(*positive: CondEntry) -> KSampler:
    return KSampler(
        sampler="euler",
        sigmas=ksampler_sigmas(family("sd15").model_sampling, "normal", 2, 1.0, "euler"),
        seed=1,
        cfg=3.0,
        positive=Conditioning(entries=positive),
        negative=Conditioning(entries=(entry(-0.2),)),
        samples=torch.zeros(1, 4, 8, 8),
    )


def evaluated(node: KSampler, *hooks: str) -> Estimates:
    args = dict(node.evaluate(node.begin(), 0).args)
    args |= {f"hook_{index}": marker for index, marker in enumerate(hooks)}
    (estimates,) = run_op("denoise_hooked", args, model=Doubled()).outputs
    assert isinstance(estimates, Estimates)
    return estimates


def stepped(node: KSampler, **more: object) -> tuple[torch.Tensor, int]:
    """x after the first step, and how often the denoiser itself was called."""
    model = ToyDenoiser()
    args = {**node.evaluate(node.begin(), 0).args, **more}
    (run,) = run_op("denoise", args, model=model).outputs
    assert isinstance(run, SamplingRun)
    return run.state.x, len(model.sigmas)


def test_only_the_calls_with_exactly_these_hooks_are_evaluated() -> None:
    entries = entry(0.1), entry(0.2, "a"), entry(0.3, "a", "b"), entry(0.4, "a", area=AREA)
    estimates = evaluated(a_run(*entries), "a")
    # The negative side comes first, and has a counterpart of the area, which has the hooks too.
    found = [index for index, given in enumerate(estimates.calls) if given is not None]
    assert found == [1, 3, 5]
    area = estimates.calls[5]
    assert area is not None
    assert area.shape == (1, 4, 4, 4)


def test_the_estimates_stand_in_for_the_denoisers_own() -> None:
    """With all texts under the hooks, a step is one on the other model."""
    node = replace(a_run(entry(0.1, "a")), negative=Conditioning(entries=(entry(-0.2, "a"),)))
    ours, num_calls = stepped(node, estimates_0=evaluated(node, "a"))
    assert num_calls == 0
    args = node.evaluate(node.begin(), 0).args
    (whole,) = run_op("denoise", args, model=Doubled()).outputs
    assert isinstance(whole, SamplingRun)
    assert torch.equal(ours, whole.state.x)


def test_estimates_of_several_sets_of_hooks_add_up() -> None:
    node = a_run(entry(0.1), entry(0.2, "a"), entry(0.3, "b", "a"))
    given = {"estimates_0": evaluated(node, "a"), "estimates_1": evaluated(node, "b", "a")}
    together, num_calls = stepped(node, **given)
    assert num_calls == 2
    plain, num_plain = stepped(node)
    assert num_plain == 4
    assert not torch.allclose(together, plain)


@pytest.mark.parametrize("number", [1, 63])
def test_estimates_count_whatever_their_numbers(number: int) -> None:
    node = a_run(entry(0.1), entry(0.2, "a"))
    estimates = evaluated(node, "a")
    ours, num_calls = stepped(node, **{f"estimates_{number}": estimates})
    assert num_calls == 2
    assert torch.equal(ours, stepped(node, estimates_0=estimates)[0])


def test_estimates_and_all_that_entries_carry_go_over_edges() -> None:
    details = CondDetails(
        guidance=3.5, reference_latents=(torch.ones(1, 4, 2, 2), torch.zeros(1, 4, 2, 2))
    )
    frames = ("percentage", 0.5, 0.5, 0.5, 0.25, 0.0, 0.0)
    one = entry(0.1, "a", "b", area=frames, is_default=True, more=details)
    sent = Conditioning(entries=(one,)), Estimates(calls=(None, torch.ones(1)))
    back = [unflatten(*flatten(value)) for value in sent]
    assert isinstance(back[0], Conditioning)
    (arrived,) = back[0].entries
    assert (arrived.hooks, arrived.area, arrived.is_default) == (("a", "b"), frames, True)
    assert (arrived.more.guidance, len(arrived.more.reference_latents)) == (3.5, 2)
    assert torch.equal(arrived.more.reference_latents[0], torch.ones(1, 4, 2, 2))
    assert isinstance(back[1], Estimates)
    assert back[1].calls[0] is None


@pytest.mark.parametrize("before", [(), ("a",), ("a", "b")])
def test_equal_hooks_hang_on_an_entry_once(before: tuple[str, ...]) -> None:
    args = {
        "conditioning": Conditioning(entries=(entry(0.1, *before),)),
        "hook_0": "a",
        "hook_1": "b",
    }
    (changed,) = run_op("cond_hooks", args).outputs
    assert isinstance(changed, Conditioning)
    assert [one.hooks for one in changed.entries] == [("a", "b")]
