"""The face of an op: the body of a node, run in an executor, for one call or for a batch.

Bodies get values and give values; where the values lie is the batch runner's business. A body that
has weights gets its loaded `Model`. Bodies of one op may be handed several calls at once (same
model); they give one result per call, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...graph_import.ir import NodeId
from ...graph_import.model import Model
from ..ids import RequestId
from ..sampling.preview import Previews
from ..values import Value


@dataclass(slots=True, frozen=True)
class Folders:
    """Where ops read and write files; every name resolves below one of them.

    `saves` holds the ledger that makes saving idempotent per (request, node).
    """

    input: Path
    output: Path
    temp: Path
    saves: Path


@dataclass(slots=True, frozen=True)
class OpContext:
    """What all calls of a batch share.

    `check_cancelled` raises `errors.Cancelled`; bodies call it before each model call and inside
    long loops.
    """

    model: Model | None
    folders: Folders
    check_cancelled: Callable[[], None]
    is_strict: bool
    previews: Previews
    is_metadata_disabled: bool


@dataclass(slots=True, frozen=True)
class OpCall:
    """One node's arguments: params and edge values under their names.

    A deferred input is a function without arguments that fetches the value. `hidden` holds the
    JSON texts that the request supplies.
    """

    request_id: RequestId
    node_id: NodeId
    args: Mapping[str, object]
    hidden: Mapping[str, str]


@dataclass(slots=True, frozen=True)
class OpResult:
    """What a call gave: one value per output port, and perhaps ui output or a JPEG preview."""

    outputs: tuple[Value, ...]
    ui: Mapping[str, object] | None = field(default=None)
    preview: bytes | None = field(default=None)


OpBody = Callable[[OpContext, Sequence[OpCall]], list[OpResult]]
