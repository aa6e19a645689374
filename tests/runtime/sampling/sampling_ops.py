"""Runs of the sampling ops, the way that lowered nodes call them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from nodeloom.graph_import.families import course_of
from nodeloom.graph_import.ir import NodeId
from nodeloom.graph_import.model import Model
from nodeloom.graph_import.sampling.base import Evaluation
from nodeloom.graph_import.sampling.samplers import sampler
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.ops.base import Folders, OpCall, OpContext, OpResult
from nodeloom.runtime.ops.sampling import denoise, sample_begin, sample_end
from nodeloom.runtime.sampling.preview import Previews
from nodeloom.runtime.values import Conditioning, Latent, SamplingRun

NOWHERE = Folders(*[Path("/nonexistent")] * 4)


def never_cancelled() -> None:
    """`check_cancelled` of a request that goes on."""


def context(model: Model | None = None, *, is_strict: bool = False) -> OpContext:
    """An OpContext without files."""
    return OpContext(
        model=model,
        folders=NOWHERE,
        check_cancelled=never_cancelled,
        is_strict=is_strict,
        previews=Previews(64, (), "cpu"),
        is_metadata_disabled=False,
    )


def call(args: Mapping[str, object], hidden: Mapping[str, str] | None = None) -> OpCall:
    """An OpCall of some request."""
    return OpCall(request_id=RequestId("r"), node_id=NodeId("3"), args=args, hidden=hidden or {})


@dataclass(frozen=True, slots=True)
class KSampler:
    """A KSampler node's inputs, with the sigmas already known."""

    sampler: str
    sigmas: tuple[float, ...]
    seed: int
    cfg: float
    positive: Conditioning
    negative: Conditioning
    samples: torch.Tensor
    noise_mask: torch.Tensor | None = None
    batch_index: tuple[int, ...] | None = None
    adds_noise: bool = True

    @property
    def latent(self) -> Latent:
        return Latent(
            samples=self.samples, noise_mask=self.noise_mask, batch_index=self.batch_index
        )

    def begin(self) -> SamplingRun:
        args = {
            "latent": self.latent,
            "seed": self.seed,
            "add_noise": self.adds_noise,
            "sampler": self.sampler,
            "sigmas": self.sigmas,
            "family": "sd15",
        }
        return run_of(sample_begin(context(), [call(args)])[0])

    def plan(self) -> tuple[Evaluation, ...]:
        return sampler(self.sampler).plan(course_of("sd15", "", self.sigmas))

    def evaluate(self, run: SamplingRun, index: int, *, preview: str = "none") -> OpCall:
        """The `denoise` call of evaluation `index`."""
        args = {
            "state": run,
            "positive": self.positive,
            "negative": self.negative,
            "cfg": self.cfg,
            "sampler": self.sampler,
            "sigmas": self.sigmas,
            "evaluation": index,
            "family": "sd15",
        }
        return call(args, {"preview_method": preview})

    def end(self, run: SamplingRun) -> torch.Tensor:
        common = {"sampler": self.sampler, "sigmas": self.sigmas, "family": "sd15"}
        args = {"state": run, "latent": self.latent, **common}
        (latent,) = sample_end(context(), [call(args)])[0].outputs
        assert isinstance(latent, Latent)
        return latent.samples


def run_of(result: OpResult) -> SamplingRun:
    """The state that a begin or denoise call gave."""
    (run,) = result.outputs
    assert isinstance(run, SamplingRun)
    return run


def advance(model: Model, calls: Sequence[OpCall], *, is_strict: bool = False) -> list[SamplingRun]:
    """The states after one batch of `denoise` calls."""
    return [run_of(result) for result in denoise(context(model, is_strict=is_strict), calls)]


def finish(model: Model, node: KSampler) -> torch.Tensor:
    """The latents of a whole run, alone."""
    run = node.begin()
    for evaluation in node.plan():
        (run,) = advance(model, [node.evaluate(run, evaluation.index)])
    return node.end(run)
