"""How many requests may share a batch and leave something to do for every executor.

A batch saves a part of each call, an executor that idles wastes all of them. So a batch of loop
calls leaves one for each other executor that could run them, however much a larger one would save:
from among the requests that are in a loop, or come to one, whatever they do at the moment. Asked at
each boundary, that parts the last requests before an executor has run out of others.
Source: the limit is ours; LegoDiffusion (arXiv 2604.08123), section 5.1 batches up to B_max.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...graph_import.handles import ModelRef
from .executors import Executors
from .loops import LoopBook
from .node_state import NodeState
from .replicas import Replicas


@dataclass(slots=True)
class Shares:
    """Bounds batches.

    Args:
        max_batch: calls in one batch at most, whoever else is there (B_max).
    """

    executors: Executors
    replicas: Replicas
    loops: LoopBook
    max_batch: int

    def largest(self, state: NodeState) -> int:
        """How many calls like a node's may be one batch."""
        loop = state.request.loop
        if loop is None or not loop.kind.has(state):
            return self.max_batch
        return self.largest_in_loop(loop.kind.model)

    def largest_in_loop(self, model: ModelRef) -> int:
        """How many calls of loops on a model may be one batch.

        Loops on other models count if they could keep one of the same executors busy.
        """
        homes = [s.executor for s in self.executors if self.replicas.has(s.executor, model.key)]
        if len(homes) < 2 or self.max_batch == 1:
            return self.max_batch
        num_calls = sum(
            width
            for key, width in self.loops.widths.items()
            if any(self.replicas.has(executor, key) for executor in homes)
        )
        return min(self.max_batch, max(1, num_calls - (len(homes) - 1)))
