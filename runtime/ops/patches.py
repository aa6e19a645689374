"""The body of the node that stands for a LoRA file: it is looked at, and on its way to memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...graph_import.handles import FileIdentity
from ..errors import PatchMatchesNothing
from ..models.lora_file import LoraFile, read_lora
from ..models.weight_files import problem
from .arguments import argument
from .base import OpCall, OpContext, OpResult

READ_BYTES: Final = 1 << 23


def patch_fetch(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Check a patch file and read it once, so that the system has it in memory when it is put on.

    Gives the number of its tensors. Raises: ModelFileProblem: the file changed, is missing or
    damaged, or needs unpickling; PatchMatchesNothing: it has no key that any model could know.
    """
    return [OpResult(outputs=(_fetch(ctx, call).num_tensors,)) for call in calls]


def looked_at(call: OpCall) -> LoraFile:
    """What a patch file's header says. Raises: ModelFileProblem, PatchMatchesNothing."""
    file = FileIdentity(
        path=argument(call, "path", str),
        size_bytes=argument(call, "size_bytes", int),
        mtime_ns=argument(call, "mtime_ns", int),
    )
    lora = read_lora(file)
    if not lora.modules:
        name = file.path.rpartition("/")[2]
        raise PatchMatchesNothing(f"{name} is no LoRA: no key of it is known", file=file.path)
    return lora


def _fetch(ctx: OpContext, call: OpCall) -> LoraFile:
    lora = looked_at(call)
    path = lora.file.path
    try:
        with open(path, "rb", buffering=0) as stream:
            while stream.read(READ_BYTES):
                ctx.check_cancelled()
    except OSError as error:
        raise problem(path, f"it can't be read: {error.strerror}") from error
    return lora
