"""`nodeloom demo`: a server with two executors on the models that ship with it, a first picture.

Exit status: 0 the picture is there; else as `nodeloom run`, or 1 if the server did not start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Final

from .child_server import ServerNotStarted, child_server
from .run import INTERRUPTED, OK, run_workflow
from .terminal import put, tell

EXECUTORS: Final = 2
USUAL_PORT: Final = 8188
RUN_LIMIT_S: Final = 600.0
FAILED: Final = 1


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
    except ServerNotStarted as problem:
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
    chosen = _choose_port() if port is None else port
    tell(f"starting a server with {EXECUTORS} executors")
    async with child_server(directory, port=chosen, executors=EXECUTORS) as address:
        status = await _draw(address, directory)
        put(f"page: {address}/")
        if status == OK and keep:
            tell("the server runs until Ctrl-C")
            await _signal()
        else:
            again = f"{_command()} serve --base-directory {directory}"
            tell(f"the server stops; start it again: {again}")
    return status


def _command() -> str:
    """What a shell calls us here."""
    own = Path(sys.executable).with_name("nodeloom")
    return own.name if shutil.which(own.name) else os.path.relpath(own)


async def _draw(address: str, directory: Path) -> int:
    """Run the example and print where its picture is; returns the exit status."""
    text = files("nodeloom.workflows").joinpath("txt2img.json").read_text(encoding="utf-8")
    outcome = await run_workflow(
        json.loads(text),
        title="txt2img.json",
        server=address,
        folder=directory / "output",
        timeout_s=RUN_LIMIT_S,
    )
    if outcome.message:
        tell(outcome.message)
    for path in outcome.pictures:
        put(f"picture: {path}")
    return outcome.exit_status


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
