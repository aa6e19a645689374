"""Has workflows traced in processes of their own, under limits of time, memory and number."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from ...graph_import.dsl.program import Program
from ...graph_import.errors import InvocationRejected, NodeloomError
from ...graph_import.handles import Scalar
from ...runtime.errors import AdmissionRejected
from .trace_messages import (
    MAX_MESSAGE_BYTES,
    SIZE_BYTES,
    Broken,
    Rejected,
    Reply,
    Traced,
    TraceTask,
)
from .user_files import SourceFile

LIMIT_S: Final = 30.0
MEMORY_BYTES: Final = 2 << 30
MAX_PROCESSES: Final = 2
MAX_WAITING: Final = 32  # each holds a text
COMMAND: Final = (
    *(sys.executable, "-P", "-m"),  # -P: nothing is imported from where the server was started
    f"{__name__.rpartition('.')[0]}.trace_process",
)


class TraceFailed(NodeloomError):
    """A workflow's text ended its process, or went on for too long (400)."""

    code = "trace_failed"


class Tracer:
    """Runs the texts of workflows, at most `MAX_PROCESSES` at a time.

    Args: limit_s: of wall time for one text; memory_bytes: of its process.
    """

    def __init__(self, limit_s: float = LIMIT_S, memory_bytes: int = MEMORY_BYTES) -> None:
        self.limit_s = limit_s
        self._memory_bytes = memory_bytes
        self._slots = asyncio.Semaphore(MAX_PROCESSES)
        self._num_asked = 0  # that wait, or are being traced

    async def trace(
        self, source: SourceFile, workflow: str | None, values: Mapping[str, Scalar] | None
    ) -> Program:
        """The program of a workflow of this text, for these values or its defaults.

        Raises: CompositionError, InvocationRejected: as the text says. TraceFailed.
        AdmissionRejected: too many wait already.
        """
        if self._num_asked >= MAX_PROCESSES + MAX_WAITING:
            raise AdmissionRejected(f"{MAX_WAITING} workflows wait to be traced: try again later")
        task = TraceTask(
            file=source.name,
            text=source.data,
            workflow=workflow,
            values=None if values is None else dict(values),
            cpu_s=math.ceil(self.limit_s) + 1,
            memory_bytes=self._memory_bytes,
        )
        self._num_asked += 1
        try:
            async with self._slots:
                reply = await self._ask(task)
        finally:
            self._num_asked -= 1
        match reply:
            case Traced(program=program):
                return program
            case Broken():
                raise reply.error()
            case Rejected(workflow=name, problems=problems):
                raise InvocationRejected(name, problems)

    async def _ask(self, task: TraceTask) -> Reply:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self.limit_s):
                return await _exchange(process, task)
        except TimeoutError as problem:
            message = f"{task.file}: it was not traced after {self.limit_s:g} s, and was stopped"
            raise TraceFailed(message, file=task.file) from problem
        finally:
            with contextlib.suppress(ProcessLookupError):  # the text may have started others
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _exchange(process: asyncio.subprocess.Process, task: TraceTask) -> Reply:
    """Send the task, get the reply. Raises: TraceFailed."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the process was started without pipes")
    body = msgspec.msgpack.encode(task)
    try:
        process.stdin.write(len(body).to_bytes(SIZE_BYTES, "big") + body)
        await process.stdin.drain()
        process.stdin.close()
        size = int.from_bytes(await process.stdout.readexactly(SIZE_BYTES), "big")
        if size > MAX_MESSAGE_BYTES:
            raise TraceFailed(f"{task.file}: its process sent no usable answer", file=task.file)
        return msgspec.msgpack.decode(await process.stdout.readexactly(size), type=Reply)
    except (asyncio.IncompleteReadError, ConnectionError) as problem:
        how = _ending(await process.wait())
        message = f"{task.file}: the process that ran it {how}"
        raise TraceFailed(message, file=task.file) from problem
    except msgspec.MsgspecError as problem:
        message = f"{task.file}: its process sent no usable answer: {problem}"
        raise TraceFailed(message, file=task.file) from problem


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"exited with {code} instead of answering"
