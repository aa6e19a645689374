"""What a pass is, and the order in which all of them run."""

from __future__ import annotations

from typing import Final, Protocol

from ..ir import Graph
from .approx_cache import approx_cache
from .async_lora import async_lora
from .context import PassContext
from .dedupe import dedupe
from .prune import prune
from .verify import verify


class Pass(Protocol):
    """Graph to Graph, the same object if nothing changed; what the sinks do stays the same."""

    def __call__(self, graph: Graph, context: PassContext) -> Graph: ...


PASSES: Final[tuple[Pass, ...]] = (prune, dedupe, approx_cache, async_lora)


def run_passes(graph: Graph, context: PassContext | None = None) -> Graph:
    """All passes; the verifier before them and after each that changed something.

    Raises: GraphBroken.
    """
    verify(graph)
    for run in PASSES:
        changed = run(graph, context or PassContext())
        if changed is not graph:
            verify(changed)
        graph = changed
    return graph
