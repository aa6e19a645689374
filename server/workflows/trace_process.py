"""Runs a workflow's text in a process of its own, started by `tracer.py`.

A TraceTask comes on standard input, a Reply goes to standard output; what the text prints goes to
standard error. Whatever the text does (loops for ever, exits, crashes), only this process suffers.
"""

from __future__ import annotations

import os
import resource
import sys

import msgspec

from ...graph_import.dsl import run_source, workflow_in
from ...graph_import.errors import CompositionError, Fault, InvocationRejected, Place
from ...runtime.executor.main import die_with_parent
from .trace_messages import (
    MAX_MESSAGE_BYTES,
    SIZE_BYTES,
    Broken,
    Rejected,
    Reply,
    Traced,
    TraceTask,
)


def main() -> None:
    """Answer one task, and end, whatever threads the text has left behind."""
    die_with_parent()
    out = os.dup(1)
    os.dup2(2, 1)
    size = int.from_bytes(sys.stdin.buffer.read(SIZE_BYTES), "big")
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(size), type=TraceTask)
    _limit(task)
    reply = _encoded(_answer(task), task.file)
    if len(reply) > MAX_MESSAGE_BYTES:
        place = Place(file=task.file, line=1)
        message = f"its program is larger than {MAX_MESSAGE_BYTES >> 20} MB"
        error = CompositionError(message, Fault.TOO_LARGE, place)
        reply = msgspec.msgpack.encode(Broken.of(error))
    with os.fdopen(out, "wb") as file:
        file.write(len(reply).to_bytes(SIZE_BYTES, "big") + reply)
    os._exit(0)


def _encoded(reply: Reply, file: str) -> bytes:
    """The reply to be sent; an error instead if it holds what no message can."""
    try:
        return msgspec.msgpack.encode(reply)
    except (ValueError, OverflowError, TypeError) as problem:  # half a surrogate pair is the first
        message = f"something of it can't be sent: {problem}".encode("ascii", "backslashreplace")
        place = Place(file=file, line=1)
        error = CompositionError(message.decode(), Fault.WRONG_VALUE, place)
        return msgspec.msgpack.encode(Broken.of(error))


def _answer(task: TraceTask) -> Reply:
    try:
        definition = workflow_in(run_source(task.text, task.file), task.workflow)
        return Traced(program=definition.trace(task.values or {}))
    except CompositionError as problem:
        return Broken.of(problem)
    except InvocationRejected as problem:
        return Rejected(workflow=definition.name, problems=problem.problems)


def _limit(task: TraceTask) -> None:
    """Bounds for processor time and memory; no core file of what was in memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (task.cpu_s, task.cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (task.memory_bytes, task.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
