"""What the NVIDIA driver says of its GPUs: names and memory. No torch is loaded for it."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

log: Final = logging.getLogger(__name__)

_QUERY: Final = ("--query-gpu=index,name,memory.total,memory.free", "--format=csv,noheader,nounits")
_TIMEOUT_S: Final = 5.0
_MEBIBYTE: Final = 1024 * 1024


class GpuMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as the driver sees it, whoever uses it."""

    name: str
    total_bytes: int
    free_bytes: int


async def read_gpus() -> dict[int, GpuMemory]:
    """All GPUs by index; none, with a line in the log, where the driver's tool can't be asked."""
    try:
        process = await asyncio.create_subprocess_exec(
            "nvidia-smi",
            *_QUERY,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as problem:
        log.warning("gpu_memory_unknown", extra={"reason": str(problem)})
        return {}
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        log.warning("gpu_memory_unknown", extra={"reason": "nvidia-smi does not answer"})
        return {}
    return parse_gpus(output.decode("utf-8", "replace"))


def parse_gpus(text: str) -> dict[int, GpuMemory]:
    """Lines of `index, name, total MiB, free MiB`; lines of another shape are left out."""
    gpus: dict[int, GpuMemory] = {}
    for line in text.splitlines():
        match [part.strip() for part in line.split(",")]:
            case [index, name, total, free] if all(n.isdigit() for n in (index, total, free)):
                gpus[int(index)] = GpuMemory(
                    name=name,
                    total_bytes=int(total) * _MEBIBYTE,
                    free_bytes=int(free) * _MEBIBYTE,
                )
    return gpus
