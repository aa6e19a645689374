"""The training loop that every stage shares: rates, averages, checkpoints, a pause, the curve.

What a step sees depends on the seed and its number alone, so a run that was interrupted goes on as
if it had not been. The environment variable NODELOOM_PAUSE_FILE may name a file: while it exists,
the loop waits.
"""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import torch
from torch import distributed

from .optimiser import Optimiser
from .run_files import Curve, load_step, save_step

PAUSE_VARIABLE: Final = "NODELOOM_PAUSE_FILE"
PAUSE_POLL_S: Final = 2.0
STATES: Final = ("momentum", "first", "second", "step")
NOT_HIDDEN: Final = re.compile(r"embedding\.weight$|\.conv_in\.|\.conv_out\.")

log = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True, kw_only=True)
class Plan:
    """How a stage is trained.

    Args:
        rate: the highest learning rate of Adam; it rises over `warmup` steps and falls as a cosine
            to a fiftieth of it at `num_steps`.
        muon_rate: the highest one of Muon, for matrices and kernels but embeddings and the first
            and last convolution; without it they are Adam's too.
        ema: decay of the averaged weights, which are what is used afterwards.
        every: steps between lines of the curve and the log.
        save_every: steps between checkpoints.
    """

    num_steps: int
    rate: float
    muon_rate: float | None = None
    warmup: int = 50
    betas: tuple[float, float] = (0.9, 0.99)
    max_norm: float = 1.0
    ema: float = 0.998
    every: int = 20
    save_every: int = 100


class Stage(Protocol):
    """Something to train: weights by name, and the loss of a step."""

    def parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """The weights that are trained, by unique names."""
        ...

    def loss(self, step: int) -> torch.Tensor:
        """The loss of step number `step`, a scalar with a gradient."""
        ...


def rate_factor(plan: Plan, step: int) -> float:
    """The share of the highest rate that step number `step` (from 0) takes."""
    if step < plan.warmup:
        return (step + 1) / plan.warmup
    progress = (step - plan.warmup) / max(1, plan.num_steps - plan.warmup)
    return 0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))


def train(stage: Stage, plan: Plan, path: Path, *, until: int | None = None) -> None:
    """Train, going on from the checkpoint at `path` if there is one.

    Args:
        until: stop after this many steps in all instead of at the plan's end.
    """
    weights = dict(stage.parameters())
    averages = {name: weight.detach().clone() for name, weight in weights.items()}
    optimiser = _optimiser(weights, plan)
    done = _restore(path, weights, averages, optimiser) if path.exists() else 0
    curve = Curve(path.with_suffix(".csv"), ("loss", "seconds_per_step"))
    is_first = rank() == 0
    if is_first:
        curve.restart(done)
    end = plan.num_steps if until is None else min(until, plan.num_steps)
    total, started = 0.0, time.monotonic()
    for step in range(done, end):
        wait_while_paused()
        optimiser.set_share(rate_factor(plan, step))
        loss = stage.loss(step)
        loss.backward()  # type: ignore[no-untyped-call]  # torch declares none
        _share_gradients(weights)
        torch.nn.utils.clip_grad_norm_(weights.values(), plan.max_norm)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        _average(averages, weights, min(plan.ema, (1 + step) / (10 + step)))
        total += float(loss.detach())
        if (step + 1) % plan.every == 0 and is_first:
            seconds = (time.monotonic() - started) / plan.every
            curve.add(step + 1, (total / plan.every, seconds))
            log.info("step %d loss %.5f %.3f s", step + 1, total / plan.every, seconds)
            total, started = 0.0, time.monotonic()
        if ((step + 1) % plan.save_every == 0 or step + 1 == end) and is_first:
            save_step(path, step + 1, dict(_named(weights, averages, optimiser)))


def rank() -> int:
    """Which of several processes that train together this is; 0 if it is alone."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def _share_gradients(weights: Mapping[str, torch.nn.Parameter]) -> None:
    """Average the gradients over the processes."""
    if not distributed.is_initialized():
        return
    gradients = [weight.grad for weight in weights.values() if weight.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.reshape(gradient.shape))


def _optimiser(weights: Mapping[str, torch.nn.Parameter], plan: Plan) -> Optimiser:
    matrices = {
        name
        for name, weight in weights.items()
        if plan.muon_rate is not None and weight.dim() > 1 and not NOT_HIDDEN.search(name)
    }
    return Optimiser(
        weights,
        matrices=matrices,
        muon_rate=plan.muon_rate or 0.0,
        adam_rate=plan.rate,
        betas=plan.betas,
    )


def wait_while_paused() -> None:
    """Return when there is no pause file."""
    name = os.environ.get(PAUSE_VARIABLE)
    while name and os.path.exists(name):
        time.sleep(PAUSE_POLL_S)


@torch.no_grad()
def _average(
    averages: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor], decay: float
) -> None:
    torch._foreach_lerp_(list(averages.values()), list(weights.values()), 1.0 - decay)


def _named(
    weights: Mapping[str, torch.nn.Parameter],
    averages: Mapping[str, torch.Tensor],
    optimiser: Optimiser,
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, weight in weights.items():
        yield f"weight.{name}", weight
        yield f"average.{name}", averages[name]
        for key, value in optimiser.state[weight].items():
            yield f"{key}.{name}", value


@torch.no_grad()
def _restore(
    path: Path,
    weights: Mapping[str, torch.nn.Parameter],
    averages: Mapping[str, torch.Tensor],
    optimiser: Optimiser,
) -> int:
    done, tensors = load_step(path)
    for name, weight in weights.items():
        weight.copy_(tensors[f"weight.{name}"])
        averages[name].copy_(tensors[f"average.{name}"])
        optimiser.state[weight] = {
            key: tensors[f"{key}.{name}"] for key in STATES if f"{key}.{name}" in tensors
        }
    return done
