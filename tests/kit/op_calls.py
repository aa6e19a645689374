"""Calls of op bodies without a cluster: a context, a call, its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nodeloom.graph_import.ir import NodeId
from nodeloom.graph_import.model import Model
from nodeloom.runtime.ids import RequestId
from nodeloom.runtime.ops.base import Folders, OpCall, OpContext, OpResult
from nodeloom.runtime.ops.registry import body
from nodeloom.runtime.sampling.preview import Previews


def folders_below(base: Path) -> Folders:
    """ComfyUI's folders and the ledger's, made below `base`."""
    folders = Folders(
        input=base / "input", output=base / "output", temp=base / "temp", saves=base / "saves"
    )
    for folder in (folders.input, folders.output, folders.temp):
        folder.mkdir(parents=True, exist_ok=True)
    return folders


def never_cancelled() -> None:
    """`check_cancelled` of a request that goes on."""


def run_op(
    op: str,
    args: Mapping[str, object],
    *,
    folders: Folders | None = None,
    model: Model | None = None,
    check_cancelled: Callable[[], None] = never_cancelled,
    request: str = "r",
    node: str = "1",
    hidden: Mapping[str, str] | None = None,
    is_metadata_disabled: bool = False,
    is_strict: bool = False,
) -> OpResult:
    """What the body of `op` gives for one call."""
    context = OpContext(
        model=model,
        folders=folders or Folders(*[Path("/nonexistent")] * 4),
        check_cancelled=check_cancelled,
        is_strict=is_strict,
        previews=Previews(64, (), "cpu"),
        is_metadata_disabled=is_metadata_disabled,
    )
    call = OpCall(
        request_id=RequestId(request), node_id=NodeId(node), args=args, hidden=hidden or {}
    )
    (result,) = body(op)(context, [call])
    return result
