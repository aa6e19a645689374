"""Starts executor processes, watches them, and starts them again when they end.

An executor that dies young is given longer and longer pauses, so that a broken installation does
not spin. Stopping is polite first, then firm; an executor also ends by itself when our end of its
standard input closes. Source: architecture, section 14 ("Processes").
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from pathlib import Path

import psutil

from ..runtime.config import ExecutorSettings, Settings
from ..runtime.coordinator.service import Coordinator
from ..runtime.errors import SettingsProblem
from ..runtime.executor.main import executor_command
from ..runtime.ids import ExecutorId

log = logging.getLogger(__name__)

YOUNG_S = 30.0
LONGEST_PAUSE_S = 30.0
STOP_LIMIT_S = 5.0
DEFAULT_CPU_EXECUTORS = 2
MODEL_MEMORY_SHARE = 0.6


class Supervisor:
    """The executors of one server.

    Args:
        preview_folders: where executors look for the tiny decoders of previews.
    """

    def __init__(
        self, settings: Settings, coordinator: Coordinator, preview_folders: tuple[Path, ...]
    ) -> None:
        self._settings = settings
        self._preview_folders = preview_folders
        self._coordinator = coordinator
        self._keepers: list[asyncio.Task[None]] = []
        self._processes: dict[ExecutorId, asyncio.subprocess.Process] = {}
        self._incarnations: dict[ExecutorId, str] = {}

    def start(self) -> None:
        """Start the executors; they say hello to the coordinator when they are ready."""
        self._coordinator.kill_executor = self._kill
        devices = self._devices()
        num_executors = len(devices)
        num_threads = self._settings.threads or self._default_num_threads(num_executors)
        share = MODEL_MEMORY_SHARE * psutil.virtual_memory().total / num_executors
        memory_bytes = int(self._settings.model_memory_gb * 1e9 or share)
        for index, device in enumerate(devices):
            executor = ExecutorId(f"{device.partition(':')[0]}{index}")
            keeper = self._keep(executor, device, num_threads, memory_bytes)
            task = asyncio.get_running_loop().create_task(keeper)
            task.add_done_callback(self._coordinator.watch)
            self._keepers.append(task)

    def _kill(self, executor: ExecutorId, incarnation: str) -> None:
        """End a process that shows no sign of life; its keeper starts another."""
        process = self._processes.get(executor)
        if process is not None and self._incarnations.get(executor) == incarnation:
            process.kill()

    async def stop(self) -> None:
        """End all executors."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(_end(process) for process in self._processes.values()))

    def _devices(self) -> list[str]:
        """One device per executor: the GPUs in turn, or the CPU."""
        num_gpus = 0 if self._settings.device == "cpu" else count_gpus()
        if self._settings.device == "cuda" and num_gpus == 0:
            raise SettingsProblem("device is cuda, but there is no NVIDIA GPU")
        if num_gpus:
            return [f"cuda:{i % num_gpus}" for i in range(self._settings.executors or num_gpus)]
        num_cores = len(os.sched_getaffinity(0))
        return ["cpu"] * (self._settings.executors or min(DEFAULT_CPU_EXECUTORS, num_cores))

    def _default_num_threads(self, num_executors: int) -> int:
        """Strict mode must not depend on how many executors share the machine's cores."""
        if self._settings.strict:
            return 1
        return max(1, len(os.sched_getaffinity(0)) // num_executors)

    async def _keep(
        self, executor: ExecutorId, device: str, num_threads: int, memory_bytes: int
    ) -> None:
        pause_s = 0.0
        while True:
            incarnation = secrets.token_hex(4)
            settings = self._executor_settings(
                executor, incarnation, device, num_threads, memory_bytes
            )
            started_s = time.monotonic()
            process = await _spawn(settings)
            self._processes[executor] = process
            self._incarnations[executor] = incarnation
            code = await process.wait()
            log.error("executor_exited", extra={"executor": executor, "exit_code": code})
            await self._coordinator.executor_exited(executor, incarnation, f"exit code {code}")
            is_young = time.monotonic() - started_s < YOUNG_S
            pause_s = min(LONGEST_PAUSE_S, max(0.5, 2 * pause_s)) if is_young else 0.0
            await asyncio.sleep(pause_s)

    def _executor_settings(
        self,
        executor: ExecutorId,
        incarnation: str,
        device: str,
        num_threads: int,
        memory_bytes: int,
    ) -> ExecutorSettings:
        settings = self._settings
        data_endpoint = self._coordinator.expect_executor(executor, incarnation)
        return ExecutorSettings(
            executor=executor,
            incarnation=incarnation,
            coordinator_endpoint=self._coordinator.executor_endpoint,
            data_endpoint=data_endpoint,
            device=device,
            num_threads=num_threads,
            is_strict=settings.strict,
            model_memory_bytes=memory_bytes,
            input_directory=settings.input_directory,
            output_directory=settings.output_directory,
            temp_directory=settings.temp_directory,
            saves_directory=settings.saves_directory,
            is_metadata_disabled=settings.disable_metadata,
            preview_size=settings.preview_size,
            preview_folders=self._preview_folders,
            log_level=settings.log_level,
            checkpoint_directory=self._coordinator.checkpoint_directory,
            user_model_directory=(
                settings.user_models_directory if settings.allow_user_models else None
            ),
        )


async def _spawn(settings: ExecutorSettings) -> asyncio.subprocess.Process:
    """A child in a session of its own, so that Ctrl-C reaches the server alone."""
    return await asyncio.create_subprocess_exec(
        *executor_command(settings),
        stdin=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_LIMIT_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def count_gpus() -> int:
    """NVIDIA GPUs that the driver shows; the server itself never loads torch."""
    listing = Path("/proc/driver/nvidia/gpus")
    return sum(1 for _ in listing.iterdir()) if listing.is_dir() else 0
