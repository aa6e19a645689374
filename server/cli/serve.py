"""`nodeloom serve`: the server, its coordinator and its executors, until a signal comes."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aiohttp import web

from ...runtime.config import Settings, add_flags, read_settings
from ...runtime.coordinator.service import Coordinator
from ...runtime.errors import SettingsProblem
from ...runtime.logs import setup_logging
from ..app import build_front
from ..app_keys import MODEL_PATHS
from ..demo_models import lay_example_pictures
from ..files import empty_temp, make_folders
from ..leftovers import only_server, sweep_checkpoints, sweep_links
from ..supervisor import Supervisor
from ..uploads import sweep

log: Final = logging.getLogger(__name__)

SHUTDOWN_LIMIT_S: Final = 5.0
USAGE_ERROR: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="nodeloom serve",
        description="Start the server with its executors. Every flag is also a variable "
        "(--base-directory: NODELOOM_BASE_DIRECTORY) and a key of the --config file.",
    )
    add_flags(parser)
    try:
        settings = read_settings(parser.parse_args(arguments), os.environ)
        setup_logging(settings.log_level, "server")
        make_folders(settings)
        with only_server(settings.state_directory):
            empty_temp(settings)
            sweep(settings.input_directory)
            sweep_links(Path(tempfile.gettempdir()))
            sweep_checkpoints()
            asyncio.run(serve(settings))
            empty_temp(settings)
    except SettingsProblem as problem:
        print(f"nodeloom serve: {problem.message}", file=sys.stderr)
        return USAGE_ERROR
    return 0


async def serve(settings: Settings) -> None:
    """Start everything, say where, wait for a signal or a failure of ours, stop everything.

    Raises: SettingsProblem: the address can't be listened on, folders, devices or the database
    make no sense.
    """
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    front = build_front(settings)
    model_paths = front.app[MODEL_PATHS]
    if model_paths.has_demo_models:
        lay_example_pictures(settings.input_directory)
    supervisor = Supervisor(settings, front.coordinator, model_paths.folders("vae_approx"))
    runner = web.AppRunner(front.app, access_log=None, shutdown_timeout=SHUTDOWN_LIMIT_S)
    try:
        await _open(front.coordinator, settings)
        address = await _listen(runner, settings)
        supervisor.start()
        print(f"nodeloom is ready: {address}", flush=True)
        await _wait(stopped, front.coordinator.failure)
        log.info("stopping")
    finally:
        await runner.cleanup()
        await supervisor.stop()
        await front.coordinator.stop()


async def _open(coordinator: Coordinator, settings: Settings) -> None:
    """Start the coordinator. Raises: SettingsProblem: its database can't be used."""
    try:
        await coordinator.start()
    except sqlite3.Error as problem:
        raise SettingsProblem(f"database in {settings.state_directory}: {problem}") from problem


async def _wait(stopped: asyncio.Event, failure: asyncio.Future[None]) -> None:
    """Return on a signal. Raises: whatever ended a task of the coordinator."""
    signalled = asyncio.create_task(stopped.wait())
    awaited: set[asyncio.Future[None] | asyncio.Task[bool]] = {signalled, failure}
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
    if failure.done():
        signalled.cancel()
        failure.result()


async def _listen(runner: web.AppRunner, settings: Settings) -> str:
    """Open the port; returns the address for people. Raises: SettingsProblem."""
    await runner.setup()
    site = web.TCPSite(runner, settings.listen, settings.port)
    try:
        await site.start()
    except OSError as problem:
        raise SettingsProblem(
            f"can't listen on {settings.listen}, port {settings.port}: {problem.strerror}"
        ) from problem
    host, port = runner.addresses[0][:2]
    if settings.listen not in ("127.0.0.1", "localhost", "::1"):
        log.warning("reachable_from_elsewhere", extra={"listen": settings.listen})
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"
