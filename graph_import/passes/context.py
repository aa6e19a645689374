"""What a run of passes must respect."""

from __future__ import annotations

import msgspec

from ..ir import NodeId


class PassContext(msgspec.Struct, frozen=True, kw_only=True):
    """Beside the Graph itself.

    Args:
        wanted: nodes that pending ones will be fed by: they may run meanwhile.
        keep: nodes that an earlier Graph of the same request has: some may have run.
    """

    wanted: frozenset[NodeId] = frozenset()
    keep: frozenset[NodeId] = frozenset()
