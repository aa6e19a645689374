"""Which values are to outlive the executor that makes them."""

from __future__ import annotations

from typing import Final

from ...graph_import.ir import Node
from ...graph_import.types import CONDITIONING, LATENT, SAMPLER_STATE

# Small, and dear to make again. Pictures are large; residuals are needed for one step only.
CHECKPOINTED_TYPES: Final = frozenset({SAMPLER_STATE, CONDITIONING, LATENT})


def checkpointed_ports(node: Node) -> tuple[int, ...]:
    """The ports of a node whose values an executor keeps in files too."""
    return tuple(p for p, port in enumerate(node.outputs) if port.type in CHECKPOINTED_TYPES)
