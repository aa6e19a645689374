"""A server as a child process: started, waited for, stopped."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from ...graph_import.errors import NodeloomError
from ..client import ServerClient

START_LIMIT_S: Final = 180.0
STOP_LIMIT_S: Final = 30.0


class ServerNotStarted(NodeloomError):
    """The server ended, or was not ready in time."""

    code = "server_not_started"


@asynccontextmanager
async def child_server(
    directory: Path, *, port: int = 0, executors: int, flags: Sequence[str] = ()
) -> AsyncIterator[str]:
    """A server on the CPU with `directory` as its base, whose executors have joined; its address.

    Its log goes to `server.log` there. Raises: ServerNotStarted.
    """
    directory.mkdir(parents=True, exist_ok=True)
    log_path = directory / "server.log"
    with log_path.open("ab") as log:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nodeloom.server.cli", "serve", "--port", str(port)),
            *("--base-directory", str(directory), "--device", "cpu"),
            *("--executors", str(executors), *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for this process, which stops the server in order
        )
    try:
        try:
            async with asyncio.timeout(START_LIMIT_S):
                address = await _ready_address(child)
                await _executors_joined(address, executors)
        except (TimeoutError, NodeloomError) as problem:
            reason = str(problem) or f"not ready after {START_LIMIT_S:g} s"
            message = f"the server did not start: {reason}; see {log_path}"
            raise ServerNotStarted(message) from problem
        yield address
    finally:
        await _stop(child)


async def _ready_address(child: asyncio.subprocess.Process) -> str:
    """The address in the server's ready line. Raises: ServerNotStarted: it ended before that."""
    if child.stdout is None:
        raise ServerNotStarted("the server has no output")
    while line := await child.stdout.readline():
        found = re.search(r"https?://\S+", line.decode(errors="replace"))
        if found:
            return found.group().rstrip("/")
    raise ServerNotStarted(f"it ended with status {await child.wait()}")


async def _executors_joined(address: str, executors: int) -> None:
    async with ServerClient(address) as client:
        while await client.num_executors() < executors:
            await asyncio.sleep(0.1)


async def _stop(child: asyncio.subprocess.Process) -> None:
    """Politely, then firmly; an interrupt while it stops does not leave it behind."""
    if child.returncode is not None:
        return
    child.terminate()
    try:
        await asyncio.wait_for(asyncio.shield(child.wait()), STOP_LIMIT_S)
    except (TimeoutError, asyncio.CancelledError):
        child.kill()
        await child.wait()
