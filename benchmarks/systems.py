"""What `bench_server.py` compares: our server, and monolithic processes behind one queue.

Both run prompts for several clients and say how often models were read or patched anew.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil
from bench_overhead import RUN_LIMIT_S, START_LIMIT_S, Server
from nodeloom.runtime.coordinator.journal import Line, read_journal
from nodeloom.runtime.scheduler.events import BatchReported
from nodeloom.server.client import ServerClient

NUM_EXECUTORS = 2


@dataclass(slots=True)
class Changes:
    """Models read from files, models patched anew, and the seconds that the latter took."""

    num_loads: int = 0
    num_switches: int = 0
    switch_s: float = 0.0

    def __add__(self, other: Changes) -> Changes:
        return Changes(
            self.num_loads + other.num_loads,
            self.num_switches + other.num_switches,
            self.switch_s + other.switch_s,
        )


class System(Protocol):
    """Something that runs prompts, one at a time for each client."""

    async def run(self, client: int, prompt: dict[str, Any]) -> None:
        """Returns when the picture is written. Raises: RuntimeError: it failed."""

    def processes(self) -> list[psutil.Process]:
        """All its processes."""

    def changes(self, since_s: float) -> Changes:
        """Since `since_s` (of time.monotonic)."""


class Served:
    """Our server with two executors of one thread; each client has a websocket of its own."""

    def __init__(self, base: Path, num_clients: int) -> None:
        self._base = base
        self._server = Server(base, executors=NUM_EXECUTORS)
        self._clients = [ServerClient(self._server.url) for _ in range(num_clients)]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Served:
        async with asyncio.timeout(START_LIMIT_S):
            for client in self._clients:
                await self._stack.enter_async_context(client)
            while await self._clients[0].num_executors() < NUM_EXECUTORS:
                await asyncio.sleep(0.1)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()
        self._server.stop()

    async def run(self, client: int, prompt: dict[str, Any]) -> None:
        sender = self._clients[client]
        accepted = await sender.submit(prompt, "benchmark")
        async with asyncio.timeout(RUN_LIMIT_S):
            async for heard in sender.follow(accepted.prompt_id):
                if heard.type == "execution_error":
                    raise RuntimeError(heard.data["exception_message"])

    def processes(self) -> list[psutil.Process]:
        return self._server.processes()

    def changes(self, since_s: float) -> Changes:
        changes = Changes()
        for report in self._reports(since_s):
            changes.num_loads += len(report.loaded)
            changes.num_switches += len(report.switched)
            changes.switch_s += sum(switch.seconds_s for switch in report.switched)
        return changes

    def _reports(self, since_s: float) -> Iterable[BatchReported]:
        """What the executors reported; the journal has it all."""
        (journal,) = (self._base / "user" / "nodeloom" / "journal").glob("*.jsonl")
        for line in read_journal(journal):
            if (
                isinstance(line, Line)
                and isinstance(line.event, BatchReported)
                and line.now_s > since_s
            ):
                yield line.event


class Loops:
    """Monolithic processes. A prompt waits until one of them is idle, first come, first served."""

    def __init__(self, base: Path, *, num_processes: int, num_threads: int) -> None:
        self._command = [sys.executable, str(Path(__file__).with_name("monolith.py"))]
        self._command += ["--base-directory", str(base), "--threads", str(num_threads)]
        self._num_processes = num_processes
        self._processes: list[asyncio.subprocess.Process] = []
        self._idle: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()
        self._answers: list[tuple[float, dict[str, Any]]] = []

    async def __aenter__(self) -> Loops:
        pipe = asyncio.subprocess.PIPE
        for _ in range(self._num_processes):
            process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
            self._processes.append(process)
            self._idle.put_nowait(process)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for process in self._processes:
            process.terminate()
            await process.wait()

    async def run(self, client: int, prompt: dict[str, Any]) -> None:
        process = await self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(prompt).encode() + b"\n")
        async with asyncio.timeout(RUN_LIMIT_S):
            line = await process.stdout.readline()
        if not line:
            raise RuntimeError(f"the reference ended with exit code {await process.wait()}")
        self._answers.append((time.monotonic(), json.loads(line)))
        self._idle.put_nowait(process)

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(process.pid) for process in self._processes]

    def changes(self, since_s: float) -> Changes:
        changes = Changes()
        for when_s, answer in self._answers:
            if when_s > since_s:
                changes.num_loads += answer["num_loads"]
                changes.num_switches += answer["num_switches"]
                changes.switch_s += answer["switch_s"]
        return changes
