"""Bodies of the nodes that `graph_import/passes/approx_cache.py` adds: look up, resume, store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from ...graph_import.passes.approx_cache import MISS
from ..errors import NodeFailed
from ..sampling.noise import sampler_generator
from ..values import Conditioning, SamplingRun
from .arguments import argument, number
from .base import OpCall, OpContext, OpResult
from .kept_states import KeptStates


def latents_lookup(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """positive -> the first level `key_N` that has a text as similar as `similarity_N`, its entry.

    Level -1 is a miss. The answer depends on what is kept: equal calls may give other ones.
    """
    return [OpResult(outputs=_look_up(call)) for call in calls]


def _look_up(call: OpCall) -> tuple[int, str]:
    embedding, states = _embedding(call), _states(call)
    level = 0
    while embedding is not None and f"key_{level}" in call.args:
        least = number(call, f"similarity_{level}")
        entry = states.find(argument(call, f"key_{level}", str), embedding, least)
        if entry is not None:
            return level, entry
        level += 1
    return MISS, ""


def latents_resume(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """The state that `entry` stands for, with the request's own stream of noise from `seed`.

    Raises: NodeFailed: it was deleted since it was found.
    """
    return [OpResult(outputs=(_resume(call),)) for call in calls]


def _resume(call: OpCall) -> SamplingRun:
    entry = argument(call, "entry", str)
    state = _states(call).load(entry)
    if state is None:
        raise NodeFailed("the kept latents to start from are gone: send it again", entry=entry)
    seed = argument(call, "seed", int)
    return SamplingRun(state=state, generator=sampler_generator(seed), seed=seed)


def latents_store(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Keep the state of a run for similar texts; where that can't be done, nothing happens."""
    for call in calls:
        embedding, run = _embedding(call), argument(call, "state", SamplingRun)
        max_bytes = argument(call, "max_bytes", int)
        if embedding is not None:
            _states(call).keep(argument(call, "key", str), embedding, run.state, max_bytes)
    return [OpResult(outputs=()) for _ in calls]


def _states(call: OpCall) -> KeptStates:
    return KeptStates(Path(argument(call, "folder", str)))


def _embedding(call: OpCall) -> torch.Tensor | None:
    """What stands for the text: its pooled vector, else the mean of its tokens, at length 1."""
    (entry,) = argument(call, "positive", Conditioning).entries
    vector = entry.cond.mean(dim=1) if entry.pooled is None else entry.pooled
    vector = vector.flatten().to(torch.float32)
    length = vector.norm()
    return vector / length if bool(length.isfinite()) and float(length) > 0.0 else None
