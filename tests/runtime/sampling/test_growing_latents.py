"""Samplers that change the size of latents on the way, and what they may be combined with."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.toy_denoiser import ToyDenoiser, steer
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.samplers import sampler_text
from nodeloom.graph_import.sampling.schedules import ksampler_sigmas
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.ops.sampling import denoise
from nodeloom.runtime.values import SamplingRun, flatten, unflatten

from .sampling_ops import KSampler, advance, context, finish, run_of

METHODS = ("bislerp", "nearest-exact", "bilinear", "area", "bicubic")


def growing(
    *,
    scale_ratio: float,
    scale_steps: int = -1,
    method: str = "bislerp",
    side: int = 6,
    noise_mask: torch.Tensor | None = None,
    seed: int = 3,
) -> KSampler:
    name = sampler_text(
        "lcm_upscale", scale_ratio=scale_ratio, scale_steps=scale_steps, upscale_method=method
    )
    sigmas = ksampler_sigmas(family("sd15").model_sampling, "simple", 4, 1.0, "lcm")
    samples = torch.linspace(-2, 2, 4 * side * 5).reshape(1, 4, side, 5)
    sides = steer(0.4), steer(-0.25)
    return KSampler(name, sigmas, seed, 4.0, *sides, samples, noise_mask=noise_mask)


nodes = st.builds(
    growing,
    scale_ratio=st.sampled_from([0.1, 1.0, 1.37, 2.5]),
    scale_steps=st.sampled_from([-1, 0, 1, 3, 1000]),
    method=st.sampled_from(METHODS),
    side=st.integers(1, 7),
    seed=st.integers(0, 2**64 - 1),
)


def carried(run: SamplingRun) -> SamplingRun:
    tree, tensors = flatten(run)
    raw = [(bytearray(t.contiguous().numpy().tobytes()), t) for t in tensors]
    back = unflatten(tree, [torch.frombuffer(b, dtype=t.dtype).reshape(t.shape) for b, t in raw])
    assert isinstance(back, SamplingRun)
    return back


@given(node=nodes)
@settings(max_examples=40, deadline=None)
def test_carried_between_evaluations_it_grows_the_same(node: KSampler) -> None:
    run = carried(node.begin())
    for evaluation in node.plan():
        advance(ToyDenoiser(), [node.evaluate(run, evaluation.index)])  # an attempt that was lost
        (run,) = advance(ToyDenoiser(), [node.evaluate(run, evaluation.index)])
        run = carried(run)
    alone = finish(ToyDenoiser(), node)
    assert torch.equal(node.end(run), alone)
    assert alone.isfinite().all()


@given(group=st.lists(nodes, min_size=2, max_size=4))
@settings(max_examples=20, deadline=None)
def test_requests_of_many_sizes_share_a_batch(group: list[KSampler]) -> None:
    runs = [node.begin() for node in group]
    for index in range(4):
        calls = [
            n.evaluate(r, index, preview="latent2rgb") for n, r in zip(group, runs, strict=True)
        ]
        runs = [run_of(result) for result in denoise(context(ToyDenoiser()), calls)]
    for node, run in zip(group, runs, strict=True):
        assert torch.allclose(node.end(run), finish(ToyDenoiser(), node), atol=1e-5)


def test_the_last_size_is_rounded_and_never_none() -> None:
    grown = finish(ToyDenoiser(), growing(scale_ratio=1.37))
    assert grown.shape == (1, 4, round(6 * 1.37), round(5 * 1.37))
    assert finish(ToyDenoiser(), growing(scale_ratio=0.1)).shape == (1, 4, 1, 1)


def test_a_size_beyond_the_bound_is_refused_before_it_is_made() -> None:
    node = growing(scale_ratio=20.0, scale_steps=1, side=70_000)
    with pytest.raises(NodeFailed, match=r"lcm_upscale makes latents of shape .* bytes"):
        advance(ToyDenoiser(), [node.evaluate(node.begin(), 0)])


def test_a_noise_mask_has_one_size() -> None:
    node = growing(scale_ratio=1.5, noise_mask=torch.ones(1, 6, 5))
    with pytest.raises(NodeFailed, match="noise mask"):
        advance(ToyDenoiser(), [node.evaluate(node.begin(), 0)])
