"""What a pass is, and the order in which all of them run."""

from __future__ import annotations

from typing import Final, Protocol

from ..ir import Graph
from .context import PassContext
from .dedupe import dedupe
from .prune import prune
from .verify import verify


class Pass(Protocol):
    """Graph to Graph; what the sinks do stays the same."""

    def __call__(self, graph: Graph, context: PassContext) -> Graph: ...


PASSES: Final[tuple[Pass, ...]] = (prune, dedupe)


def run_passes(graph: Graph, context: PassContext | None = None) -> Graph:
    """All passes; the verifier before, between and after them. Raises: GraphBroken."""
    verify(graph)
    for run in PASSES:
        graph = run(graph, context or PassContext())
        verify(graph)
    return graph
