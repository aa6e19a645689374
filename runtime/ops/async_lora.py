"""Bodies of the nodes that `graph_import/passes/async_lora.py` adds: have a file fetched, check it.

What is fetched lands in the system's memory of files, from where it is patched in.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..models.weight_files import problem
from .base import OpCall, OpContext, OpResult
from .patches import looked_at, patch_fetch


def patch_trigger(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Look at a patch file and have the system read it, without waiting for it.

    Gives the number of its tensors. Raises: as `patch_fetch`.
    """
    return [OpResult(outputs=(_trigger(call),)) for call in calls]


def _trigger(call: OpCall) -> int:
    lora = looked_at(call)
    try:
        file = os.open(lora.file.path, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(file)
    except OSError as error:
        raise problem(lora.file.path, f"it can't be read: {error.strerror}") from error
    return lora.num_tensors


def patch_check(ctx: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """Wait until a patch file is there, whole and unchanged: from here on it may be used."""
    return patch_fetch(ctx, calls)
