"""What `nodeloom doctor` looks at. Nothing is changed on the machine.

Torch and the native module are imported in a child process, so that one that crashes can't take the
doctor along.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Iterator
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec
import psutil

from ...graph_import.errors import ModelFileProblem
from ...runtime.config import Settings
from ..catalog import FolderCatalog
from ..files import Folders
from ..model_paths import ModelPaths

PACKAGES: Final = (
    "nodeloom",
    "torch",
    "diffusers",
    "transformers",
    "accelerate",
    "safetensors",
    "numpy",
    "pillow",
    "pyzmq",
    "msgspec",
    "aiohttp",
)
CHILD_LIMIT_S: Final = 120.0
SMI_LIMIT_S: Final = 20.0
LEAST_DISK_BYTES: Final = 200 * 10**6
SMALL_DISK_BYTES: Final = 5 * 10**9
SMALL_MEMORY_BYTES: Final = 2 * 10**9
MAX_CHECKPOINTS: Final = 200

_IMPORTS: Final = """
import json, torch, diffusers, transformers
print(json.dumps({"cuda": torch.version.cuda, "devices": torch.cuda.device_count()}))
"""
_NATIVE: Final = """
import json
from nodeloom.cuda_ext import native_status
status = native_status()
print(json.dumps({"is_loaded": status.is_loaded, "reason": status.reason}))
"""


class Verdict(StrEnum):
    """How a check came out; only BROKEN keeps a server from working."""

    GOOD = "good"
    NOTE = "note"
    BROKEN = "broken"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the doctor's report."""

    name: str
    verdict: Verdict
    detail: str


def all_checks(settings: Settings, python: str) -> list[Check]:
    """Everything, in the order in which it is shown. Raises: SettingsProblem: model path files."""
    catalog_paths = ModelPaths.of(settings)
    return [
        check_python(),
        *check_packages(),
        check_imports(python),
        check_native(python),
        check_processors(),
        check_gpus(settings.device),
        check_memory(),
        *check_folders(settings),
        check_disk(settings),
        check_port(settings.listen, settings.port),
        *check_checkpoints(FolderCatalog(catalog_paths, Folders.of(settings))),
    ]


def check_python() -> Check:
    """The interpreter and the system."""
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check(name="python", verdict=Verdict.GOOD, detail=detail)


def check_packages() -> Iterator[Check]:
    """Installed versions, from the metadata alone."""
    found: list[str] = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Check(name=f"package {name}", verdict=Verdict.BROKEN, detail="not installed")
    yield Check(name="packages", verdict=Verdict.GOOD, detail=", ".join(found))


def check_imports(python: str) -> Check:
    """Whether torch and the model libraries load."""
    answer = _in_child(python, _IMPORTS)
    if isinstance(answer, str):
        return Check(name="torch loads", verdict=Verdict.BROKEN, detail=answer)
    built = f"built for CUDA {answer['cuda']}" if answer["cuda"] else "built for CPUs"
    detail = f"{built}, {answer['devices']} CUDA device(s) usable"
    return Check(name="torch loads", verdict=Verdict.GOOD, detail=detail)


def check_native(python: str) -> Check:
    """Whether our compiled module loads; without it the plain data plane is used."""
    answer = _in_child(python, _NATIVE)
    if isinstance(answer, str):
        return Check(name="native module", verdict=Verdict.NOTE, detail=answer)
    if answer["is_loaded"]:
        return Check(name="native module", verdict=Verdict.GOOD, detail="loads")
    return Check(name="native module", verdict=Verdict.NOTE, detail=str(answer["reason"]))


def check_processors() -> Check:
    """Processors of the machine, and those that this process may use."""
    usable = len(os.sched_getaffinity(0))
    detail = f"{usable} of {os.cpu_count()} processors usable"
    return Check(name="processors", verdict=Verdict.GOOD, detail=detail)


def check_gpus(device: str) -> Check:
    """What nvidia-smi sees; its absence is broken only if CUDA was asked for."""
    absence = Verdict.BROKEN if device == "cuda" else Verdict.NOTE
    program = shutil.which("nvidia-smi")
    if program is None:
        return Check(name="gpus", verdict=absence, detail="no nvidia-smi here: CPUs only")
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=SMI_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Check(name="gpus", verdict=absence, detail=f"nvidia-smi: {problem}")
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode != 0 or not lines:
        reason = (done.stderr or done.stdout).strip()[:200] or "lists no device"
        return Check(name="gpus", verdict=absence, detail=f"nvidia-smi: {reason}")
    return Check(name="gpus", verdict=Verdict.GOOD, detail=f"{len(lines)}: {'; '.join(lines)}")


def check_memory() -> Check:
    """Host memory."""
    memory = psutil.virtual_memory()
    detail = f"{_giga(memory.available)} of {_giga(memory.total)} available"
    verdict = Verdict.NOTE if memory.available < SMALL_MEMORY_BYTES else Verdict.GOOD
    return Check(name="memory", verdict=verdict, detail=detail)


def check_folders(settings: Settings) -> Iterator[Check]:
    """Models must be readable; all else is written to."""
    yield _folder("models", settings.models_directory / "checkpoints", os.R_OK | os.X_OK)
    for name in ("input", "output", "temp", "user"):
        folder: Path = getattr(settings, f"{name}_directory")
        yield _folder(name, folder, os.R_OK | os.W_OK | os.X_OK)


def check_disk(settings: Settings) -> Check:
    """Room for pictures."""
    place = _nearest_existing(settings.output_directory)
    free = shutil.disk_usage(place).free
    verdict = Verdict.GOOD
    if free < SMALL_DISK_BYTES:
        verdict = Verdict.BROKEN if free < LEAST_DISK_BYTES else Verdict.NOTE
    return Check(name="disk", verdict=verdict, detail=f"{_giga(free)} free at {place}")


def check_port(listen: str, port: int) -> Check:
    """Whether the address could be listened on; a taken port may be a server of ours that runs."""
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listen, port))
        except OSError as problem:
            detail = f"{listen}:{port} can't be listened on: {problem.strerror}"
            return Check(name="port", verdict=Verdict.NOTE, detail=detail)
    return Check(name="port", verdict=Verdict.GOOD, detail=f"{listen}:{port} is free")


def check_checkpoints(catalog: FolderCatalog) -> Iterator[Check]:
    """Every checkpoint: its family, or why it can't be used."""
    names = catalog.choices("checkpoints")
    if not names:
        yield Check(name="checkpoints", verdict=Verdict.NOTE, detail="none found")
    for name in names[:MAX_CHECKPOINTS]:
        try:
            info = catalog.checkpoint(name)
        except ModelFileProblem as problem:
            yield Check(
                name="checkpoint", verdict=Verdict.NOTE, detail=f"{name}: {problem.message}"
            )
            continue
        roles = ", ".join(sorted(info.roles))
        detail = f"{name}: {info.family} ({roles}), {info.dtype}, {_giga(info.file.size_bytes)}"
        yield Check(name="checkpoint", verdict=Verdict.GOOD, detail=detail)
    if len(names) > MAX_CHECKPOINTS:
        more = f"{len(names) - MAX_CHECKPOINTS} more were not looked at"
        yield Check(name="checkpoints", verdict=Verdict.NOTE, detail=more)


def _folder(name: str, folder: Path, access: int) -> Check:
    label = f"folder {name}"
    place = folder
    note = ""
    if not folder.exists():
        place, note = _nearest_existing(folder), " (will be made)"
        access |= os.W_OK
    if not place.is_dir():
        return Check(name=label, verdict=Verdict.BROKEN, detail=f"{place} is no folder")
    if not os.access(place, access):
        wanted = "written" if access & os.W_OK else "read"
        return Check(name=label, verdict=Verdict.BROKEN, detail=f"{place} can't be {wanted}")
    return Check(name=label, verdict=Verdict.GOOD, detail=f"{folder}{note}")


def _nearest_existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _in_child(python: str, program: str) -> dict[str, object] | str:
    """What a program prints as JSON on its last line, or why it gave none."""
    command = [python, "-c", program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"ended with status {done.returncode}"
    return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=dict[str, object])


def _giga(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
