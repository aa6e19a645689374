"""An executor process: `python -m nodeloom.runtime.executor.main SETTINGS`, SETTINGS as JSON.

Whoever starts it keeps the other end of its stdin open and does so from a thread that lives as
long as itself: the executor exits when that pipe closes, and when that thread ends.
torch is imported only after the environment is set, so importing this module is cheap.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import msgspec
import zmq

from ..config import ExecutorSettings
from ..logs import setup_logging

if TYPE_CHECKING:
    from ..ids import BatchId
    from .io_thread import Work

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG: Final = 1  # prctl(2)
VALUES_DEVICE: Final = "cpu"  # what goes over edges; models move it to their device and back


def executor_command(settings: ExecutorSettings) -> list[str]:
    """The command line that starts an executor with these settings."""
    text = msgspec.json.encode(settings, enc_hook=str).decode()
    return [sys.executable, "-m", __spec__.name, text]


def main() -> int:
    """Run the executor; returns the process's exit code."""
    settings = msgspec.json.decode(
        sys.argv[1], type=ExecutorSettings, dec_hook=lambda cls, text: cls(text)
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's business
    die_with_parent()
    setup_logging(settings.log_level, settings.executor)
    set_environment(settings)
    try:
        run(settings)
    except Exception:
        log.exception("executor_broken")
        return 1
    return 0


def set_environment(settings: ExecutorSettings) -> None:
    """What numeric libraries read once, when they are first imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["OMP_NUM_THREADS"] = str(settings.num_threads)
    if settings.is_strict:
        # A library that takes fewer threads when the machine is busy sums in another order.
        os.environ["MKL_DYNAMIC"] = "FALSE"
        os.environ["OMP_DYNAMIC"] = "FALSE"
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def die_with_parent() -> None:
    """On Linux, have the kernel kill us when our parent dies, even before stdin is watched."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died between the two calls
        os._exit(0)


def run(settings: ExecutorSettings) -> None:
    """Serve the coordinator until it says Shutdown, or SIGTERM comes."""
    import torch

    from ..data_plane.checkpoints import own_checkpoints
    from ..data_plane.local import LocalPlane
    from ..data_plane.routes import ExecutorPlane
    from ..data_plane.zmq import TensorFetcher, TensorServer
    from ..models.registry import build, import_libraries
    from ..ops.registry import body
    from .batch_runner import BatchRunner
    from .io_thread import IoThread
    from .loop import ExecutorLoop
    from .model_cache import ModelCache

    torch.set_num_threads(settings.num_threads)
    torch.set_num_interop_threads(1)
    if settings.is_strict:
        torch.use_deterministic_algorithms(True)
        # That would also fill every new tensor; ours are all written to before they are read.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # untyped

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    inbox: SimpleQueue[Work] = SimpleQueue()
    local = LocalPlane(
        settings.executor,
        settings.incarnation,
        settings.data_endpoint,
        VALUES_DEVICE,
        own_checkpoints(settings.checkpoint_directory),
    )
    plane = ExecutorPlane(local, TensorFetcher(context, VALUES_DEVICE))
    models = ModelCache(
        settings.model_memory_bytes,
        settings.device,
        partial(build, user_files=settings.user_model_directory),
    )
    loop = ExecutorLoop(inbox, BatchRunner(settings, plane, models, body), begun_notes(settings))
    signal.signal(signal.SIGTERM, lambda _signal, _frame: loop.stop())
    server = TensorServer(context, settings.data_endpoint, local.find)
    io = IoThread(settings, context, plane, server, inbox, loop.stop, lambda: orphaned(settings))
    io.start()
    try:
        loop.run(io, import_libraries)  # seconds that the first model is spared
    finally:
        io.finish()
        plane.close()
        context.term()


def begun_notes(settings: ExecutorSettings) -> Callable[[BatchId], None]:
    """Where to note which batch begins; nowhere, if there is no folder for it."""
    from ..data_plane.begun import BegunMark

    if settings.checkpoint_directory is None:
        return lambda _batch_id: None
    try:
        mark = BegunMark(settings.checkpoint_directory, settings.executor, settings.incarnation)
    except OSError as problem:
        log.warning("begun_not_noted", extra={"reason": str(problem)})
        return lambda _batch_id: None
    return mark.set


def orphaned(settings: ExecutorSettings) -> None:
    """The parent is gone: leave at once, even from the middle of a batch, and tidy up our name."""
    log.warning("executor_orphaned")
    if settings.data_endpoint.startswith("ipc://"):
        Path(settings.data_endpoint.removeprefix("ipc://")).unlink(missing_ok=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
