"""A run may be stopped, carried, batched with others and re-executed without a trace."""

from __future__ import annotations

import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.toy_denoiser import ToyDenoiser, steer
from nodeloom.graph_import.families import family
from nodeloom.graph_import.sampling.samplers import SAMPLER_NAMES, sampler
from nodeloom.graph_import.sampling.schedules import SCHEDULE_NAMES, ksampler_sigmas
from nodeloom.runtime.errors import Cancelled, NodeFailed
from nodeloom.runtime.ops.base import OpContext
from nodeloom.runtime.ops.sampling import denoise, empty_latent, sample_begin
from nodeloom.runtime.values import (
    CondEntry,
    Conditioning,
    Latent,
    SamplingRun,
    flatten,
    unflatten,
)
from PIL import Image

from .sampling_ops import KSampler, advance, call, context, finish

regions = st.fixed_dictionaries(
    {
        "cond": st.floats(-1, 1).map(lambda value: torch.full((1, 4, 8), value)),
        "pooled": st.none(),
        "area": st.sampled_from(
            [None, ("latent", 4.0, 3.0, 1.0, 1.0), ("percentage", 0.5, 0.5, 0.5, 0.5)]
        ),
        "strength": st.sampled_from([1.0, 0.3]),
        "mask": st.none() | st.just(torch.linspace(0, 1, 12 * 10).reshape(1, 12, 10)),
        "is_mask_bounds": st.booleans(),
        "end_percent": st.sampled_from([1.0, 0.5]),
        "is_default": st.booleans(),
    }
)
sides = st.lists(regions.map(lambda fields: CondEntry(**fields)), min_size=1, max_size=2).map(
    lambda entries: Conditioning(entries=tuple(entries))
)
nodes = st.builds(
    lambda name, scheduler, steps, strength, seed, cfg, batch, positive, masked, **rest: KSampler(
        sampler=name,
        sigmas=ksampler_sigmas(family("sd15").model_sampling, scheduler, steps, strength, name),
        seed=seed,
        cfg=cfg,
        positive=positive,
        negative=steer(-0.25),
        samples=torch.linspace(-2, 2, batch * 4 * 6 * 5).reshape(batch, 4, 6, 5),
        noise_mask=torch.linspace(0, 1, masked * 48 * 40).reshape(masked, 1, 48, 40)
        if masked
        else None,
        **rest,
    ),
    st.sampled_from([name for name in SAMPLER_NAMES if not sampler(name).is_adaptive]),
    st.sampled_from(SCHEDULE_NAMES),
    st.integers(1, 5),
    st.sampled_from([1.0, 0.6]),
    st.integers(0, 2**64 - 1),
    st.sampled_from([1.0, 4.5, 7.0]),
    st.integers(1, 2),
    st.floats(-1, 1).map(steer) | sides,
    st.integers(0, 2),
    adds_noise=st.booleans(),
)


def carried(run: SamplingRun) -> SamplingRun:
    """The state after a trip through bytes, as between two executors."""
    tree, tensors = flatten(run)
    copies = []
    for tensor in tensors:
        raw = bytearray(tensor.contiguous().numpy().tobytes())
        copies.append(torch.frombuffer(raw, dtype=tensor.dtype).reshape(tensor.shape))
    back = unflatten(tree, copies)
    assert isinstance(back, SamplingRun)
    return back


@given(node=nodes)
@settings(max_examples=40, deadline=None)
def test_carried_between_evaluations_is_the_same_run(node: KSampler) -> None:
    run = carried(node.begin())
    for evaluation in node.plan():
        advance(ToyDenoiser(), [node.evaluate(run, evaluation.index)])  # an attempt that was lost
        (run,) = advance(ToyDenoiser(), [node.evaluate(run, evaluation.index)])
        run = carried(run)
    assert torch.equal(node.end(run), finish(ToyDenoiser(), node))


@given(group=st.lists(nodes, min_size=2, max_size=4), is_strict=st.booleans())
@settings(max_examples=30, deadline=None)
def test_requests_at_different_steps_in_one_batch(group: list[KSampler], is_strict: bool) -> None:
    """Request i starts i batches late, so that no two are at the same step."""
    runs = [node.begin() for node in group]
    num_rounds = max(index + len(node.plan()) for index, node in enumerate(group))
    for turn in range(num_rounds):
        active = [i for i, node in enumerate(group) if 0 <= turn - i < len(node.plan())]
        if not active:
            continue
        calls = [group[i].evaluate(runs[i], turn - i) for i in active]
        for i, run in zip(active, advance(ToyDenoiser(), calls, is_strict=is_strict), strict=True):
            runs[i] = run
    for node, run in zip(group, runs, strict=True):
        assert torch.equal(node.end(run), finish(ToyDenoiser(), node))


def example(**changes: object) -> KSampler:
    fields = {
        "sampler": "euler",
        "sigmas": (14.6146, 4.0, 0.0),
        "seed": 1,
        "cfg": 7.0,
        "positive": steer(0.4),
        "negative": steer(-0.25),
        "samples": torch.zeros(2, 4, 16, 8),
    }
    return KSampler(**(fields | changes))  # type: ignore[arg-type]  # fields by name


def test_a_run_without_sigmas_gives_the_latents_back() -> None:
    samples = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(3))
    assert torch.allclose(finish(ToyDenoiser(), example(sigmas=(), samples=samples)), samples)


def test_the_negative_is_not_evaluated_at_a_scale_of_one() -> None:
    model = ToyDenoiser()
    finish(model, example(cfg=1.0))
    assert model.sigmas == [14.6146, 4.0]


def test_negative_comes_first_and_all_calls_share_one_batch() -> None:
    seen: list[list[float]] = []

    class Watched(ToyDenoiser):
        def execute_batch(self, calls):  # type: ignore[no-untyped-def]  # as the base class
            seen.append([round(call["context"].mean().item(), 4) for call in calls])
            return super().execute_batch(calls)

    first, second = example(), example(positive=steer(0.1))
    advance(Watched(), [node.evaluate(node.begin(), 0) for node in (first, second)])
    assert seen == [[-0.25, 0.4, -0.25, 0.1]]


@pytest.mark.parametrize("method", ["latent2rgb", "auto", "taesd"])
def test_a_preview_fits_its_square(method: str) -> None:
    node = example()
    step = node.evaluate(node.begin(), 0, preview=method)
    (result,) = denoise(context(ToyDenoiser()), [step])
    assert result.preview is not None
    picture = Image.open(io.BytesIO(result.preview))
    assert (picture.format, picture.size, picture.mode) == ("JPEG", (32, 64), "RGB")


@pytest.mark.parametrize("method", ["none", "default", ""])
def test_no_preview_unless_asked(method: str) -> None:
    node = example()
    step = node.evaluate(node.begin(), 0, preview=method)
    assert denoise(context(ToyDenoiser()), [step])[0].preview is None


def test_cancelling_is_noticed_before_the_model_runs() -> None:
    def cancelled() -> None:
        raise Cancelled("interrupted")

    calm, model, node = context(ToyDenoiser()), ToyDenoiser(), example()
    ctx = OpContext(model, calm.folders, cancelled, False, calm.previews, False)
    with pytest.raises(Cancelled):
        denoise(ctx, [node.evaluate(node.begin(), 0)])
    assert model.sigmas == []


def test_latents_of_another_family_are_refused() -> None:
    args = {
        "latent": Latent(samples=torch.ones(1, 16, 8, 8)),
        "seed": 0,
        "add_noise": True,
        "sampler": "euler",
        "sigmas": [1.0, 0.0],
        "family": "sd15",
    }
    with pytest.raises(NodeFailed, match="4, height"):
        sample_begin(context(), [call(args)])


def test_an_empty_latent_has_an_eighth_of_the_pixels() -> None:
    args = {"width": 520, "height": 264, "batch_size": 3}
    (result,) = empty_latent(context(), [call(args)])
    (latent,) = result.outputs
    assert isinstance(latent, Latent)
    assert latent.samples.shape == (3, 4, 33, 65)
    assert not latent.samples.any()


@pytest.mark.parametrize("size", [(16384, 16384, 4096), (4, 64, 1), (64, 64, 0)])
def test_impossible_latents_are_refused(size: tuple[int, int, int]) -> None:
    args = dict(zip(("width", "height", "batch_size"), size, strict=True))
    with pytest.raises(NodeFailed, match="latent of shape"):
        empty_latent(context(), [call(args)])


def test_deferred_inputs_are_fetched_and_wrong_ones_named() -> None:
    node = example()
    run = node.begin()
    step = node.evaluate(run, 0)
    lazy = call(dict(step.args) | {"positive": lambda: node.positive})
    (ours,) = advance(ToyDenoiser(), [lazy])
    (wanted,) = advance(ToyDenoiser(), [step])
    assert torch.equal(ours.state.x, wanted.state.x)
    with pytest.raises(NodeFailed, match="positive must be Conditioning, not NoneType"):
        advance(ToyDenoiser(), [call(dict(step.args) | {"positive": None})])
