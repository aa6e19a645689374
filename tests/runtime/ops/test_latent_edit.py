"""Nodes on latents give what ComfyUI's give, with all that a latent carries."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kit.op_calls import run_op
from nodeloom.runtime.errors import NodeFailed
from nodeloom.runtime.values import Latent

from .node_goldens import assert_recorded, cases, inputs

RECORDED = {
    "LatentUpscale": "latent_upscale",
    "LatentUpscaleBy": "latent_upscale_by",
    "LatentComposite": "latent_composite",
    "RepeatLatentBatch": "latent_repeat",
    "LatentBatch": "latent_batch",
    "LatentFromBatch": "latent_from_batch",
}


def samples_of(op: str, **args: object) -> torch.Tensor:
    (latent,) = run_op(op, args).outputs
    assert isinstance(latent, Latent)
    return latent.samples


@pytest.mark.parametrize("case", [case for node in RECORDED for case in cases(node)], ids=str)
def test_a_node_gives_what_comfyui_gave(case: Any) -> None:
    given = inputs(case)
    before = [value.samples.clone() for value in given.values() if isinstance(value, Latent)]
    (latent,) = run_op(RECORDED[case["node"]], given).outputs
    assert_recorded(latent, case["outputs"][0][0])
    after = [value.samples for value in given.values() if isinstance(value, Latent)]
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one, other)


def test_bislerp_turns_vectors_and_mixes_their_lengths() -> None:
    right, up = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 1.0])
    latent = Latent(samples=torch.stack([right, up], dim=1).reshape(1, 2, 1, 2))
    samples = samples_of(
        "latent_upscale_by", samples=latent, upscale_method="bislerp", scale_by=3.0
    )
    quarter = samples[0, :, 1, 2]  # a third of the way: the second of six columns between them
    share = (2 + 0.5) / 3 - 0.5
    angle = torch.tensor(share * torch.pi / 2)
    expected = torch.stack([angle.cos(), angle.sin()]) * (3.0 * (1 - share) + 1.0 * share)
    assert torch.allclose(quarter, expected, atol=1e-6)


def test_bislerp_of_zeros_is_zeros() -> None:
    latent = Latent(samples=torch.zeros(1, 4, 3, 3))
    samples = samples_of(
        "latent_upscale_by", samples=latent, upscale_method="bislerp", scale_by=2.0
    )
    assert torch.equal(samples, torch.zeros(1, 4, 6, 6))


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("latent_upscale_by", {"upscale_method": "bilinear", "scale_by": 1e6}),
        ("latent_upscale_by", {"upscale_method": "bilinear", "scale_by": 0.01}),
        ("latent_upscale", {"upscale_method": "area", "width": 2**30, "height": 8, "crop": "no"}),
        ("latent_repeat", {"amount": 2**40}),
    ],
)
def test_latents_of_impossible_size_are_not_begun(op: str, args: dict[str, object]) -> None:
    with pytest.raises(NodeFailed, match="is empty or has more than"):
        run_op(op, {"samples": Latent(samples=torch.zeros(1, 4, 8, 8)), **args})


@pytest.mark.parametrize("method", ["lanczos", "magic"])
def test_a_method_that_latents_do_not_have_is_named(method: str) -> None:
    args = {"samples": Latent(samples=torch.zeros(1, 4, 8, 8)), "scale_by": 2.0}
    with pytest.raises(NodeFailed, match=method):
        run_op("latent_upscale_by", {**args, "upscale_method": method})


def test_latents_that_do_not_fit_each_other_are_refused() -> None:
    four, sixteen = (
        Latent(samples=torch.zeros(1, 4, 8, 8)),
        Latent(samples=torch.zeros(1, 16, 8, 8)),
    )
    with pytest.raises(NodeFailed, match="can't join"):
        run_op("latent_batch", {"samples1": four, "samples2": sixteen})
    with pytest.raises(NodeFailed, match="can't be laid onto"):
        run_op(
            "latent_composite",
            {"samples_to": four, "samples_from": sixteen, "x": 0, "y": 0, "feather": 0},
        )


def test_a_latent_laid_wholly_outside_changes_nothing() -> None:
    below, above = Latent(samples=torch.ones(1, 4, 8, 8)), Latent(samples=torch.zeros(1, 4, 8, 8))
    args = {"samples_to": below, "samples_from": above, "x": 800, "y": 0, "feather": 16}
    assert torch.equal(samples_of("latent_composite", **args), below.samples)
