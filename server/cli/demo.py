"""`nodeloom demo`: a server with two executors, a tiny checkpoint, a first picture.

Exit status: 0 the picture is there; else as `nodeloom run`, or 1 if the server did not start.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from importlib.resources import files
from pathlib import Path
from typing import Final

from ...graph_import.errors import NodeloomError
from ..client import ServerClient
from .run import INTERRUPTED, OK, run_workflow
from .terminal import put, tell
from .workflow_file import parse_prompt

CHECKPOINT: Final = "tiny-random-sd15.safetensors"
EXECUTORS: Final = 2
USUAL_PORT: Final = 8188
START_LIMIT_S: Final = 180.0
STOP_LIMIT_S: Final = 30.0
RUN_LIMIT_S: Final = 600.0
FAILED: Final = 1

# A child writes the weights: this process stays free of the model libraries.
_WRITE_CHECKPOINT: Final = """
import sys
from pathlib import Path
from nodeloom.runtime.models.tiny import write_tiny_sd15
write_tiny_sd15(Path(sys.argv[1]), seed=0)
"""


class DemoFailed(NodeloomError):
    """The checkpoint could not be written, or the server did not start."""

    code = "demo_failed"


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="nodeloom demo", description="Start a server and draw a first picture."
    )
    parser.add_argument("--directory", type=Path, default=Path("demo"), help="default: demo")
    parser.add_argument("--port", type=int, help=f"default: {USUAL_PORT}, or a free one")
    parser.add_argument("--keep", action="store_true", help="leave the server running until Ctrl-C")
    args = parser.parse_args(arguments)
    keep = args.keep or sys.stdout.isatty()
    try:
        return asyncio.run(_demo(args.directory.absolute(), args.port, keep))
    except DemoFailed as problem:
        tell(problem.message)
        return FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED


async def _demo(directory: Path, port: int | None, keep: bool) -> int:
    loop = asyncio.get_running_loop()
    current = asyncio.current_task()
    if current is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, current.cancel)
    checkpoint = directory / "models" / "checkpoints" / CHECKPOINT
    if not checkpoint.exists():
        tell(f"writing a tiny checkpoint with random weights to {checkpoint}")
        await _write_checkpoint(checkpoint)
    chosen = _choose_port() if port is None else port
    tell(f"starting a server with {EXECUTORS} executors")
    async with _server(directory, chosen) as address:
        status = await _draw(address, directory)
        put(f"page: {address}/")
        if status == OK and keep:
            tell("the server runs until Ctrl-C")
            await _signal()
        else:
            tell(f"the server stops; start it again: nodeloom serve --base-directory {directory}")
    return status


async def _draw(address: str, directory: Path) -> int:
    """Run the example and print where its picture is; returns the exit status."""
    text = files("nodeloom.workflows").joinpath("txt2img.json").read_text(encoding="utf-8")
    outcome = await run_workflow(
        parse_prompt(text),
        title="txt2img.json",
        server=address,
        folder=directory / "output",
        timeout_s=RUN_LIMIT_S,
    )
    if outcome.message:
        tell(outcome.message)
    for path in outcome.pictures:
        put(f"picture: {path}")
    example = directory / "input" / "example.png"  # what the example img2img.json reads
    if outcome.pictures and not example.exists():
        await asyncio.to_thread(shutil.copyfile, outcome.pictures[0], example)
    return outcome.exit_status


async def _write_checkpoint(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WRITE_CHECKPOINT, str(partial)
    )
    if await child.wait() != 0:
        raise DemoFailed("the tiny checkpoint could not be written")
    partial.rename(path)


@asynccontextmanager
async def _server(directory: Path, port: int) -> AsyncIterator[str]:
    """A server below `directory`, ready to work; its address. Raises: DemoFailed."""
    log_path = directory / "server.log"
    with log_path.open("ab") as log:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nodeloom.server.cli", "serve", "--port", str(port)),
            *("--base-directory", str(directory), "--device", "cpu"),
            *("--executors", str(EXECUTORS)),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for this process, which stops the server in order
        )
    try:
        try:
            async with asyncio.timeout(START_LIMIT_S):
                address = await _ready_address(child)
                await _executors_joined(address)
        except (TimeoutError, NodeloomError) as problem:
            reason = str(problem) or f"not ready after {START_LIMIT_S:g} s"
            raise DemoFailed(f"the server did not start: {reason}; see {log_path}") from problem
        yield address
    finally:
        await _stop(child)


async def _ready_address(child: asyncio.subprocess.Process) -> str:
    """The address in the server's ready line. Raises: DemoFailed: it ended before it said it."""
    if child.stdout is None:
        raise DemoFailed("the server has no output")
    while line := await child.stdout.readline():
        found = re.search(r"https?://\S+", line.decode(errors="replace"))
        if found:
            return found.group().rstrip("/")
    raise DemoFailed(f"it ended with status {await child.wait()}")


async def _executors_joined(address: str) -> None:
    async with ServerClient(address) as client:
        while await client.num_executors() < EXECUTORS:
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


async def _signal() -> None:
    """Return on Ctrl-C, a polite end, or when the terminal goes away."""
    came = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, came.set)
    await came.wait()


def _choose_port() -> int:
    """ComfyUI's port if it is free, else 0: any."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return 0
    return USUAL_PORT
