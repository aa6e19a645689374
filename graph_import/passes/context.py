"""What a run of passes must respect."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..handles import Scalar
from ..ir import NodeId
from .options import PassOptions


class PassContext(msgspec.Struct, frozen=True, kw_only=True):
    """Beside the Graph itself.

    Args:
        wanted: nodes that pending ones will be fed by: they may run meanwhile.
        keep: nodes that an earlier Graph of the same request has: some may have run.
        known: values that outputs of those turned out to have, by (node, port).
        options: what the request opted in to.
    """

    wanted: frozenset[NodeId] = frozenset()
    keep: frozenset[NodeId] = frozenset()
    known: Mapping[tuple[NodeId, int], Scalar] = msgspec.field(default_factory=dict)
    options: PassOptions = PassOptions()
