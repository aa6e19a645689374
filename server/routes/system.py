"""GET /system_stats, /features, /healthz, /readyz. Source: spec comfyui-api/api.md, section 10."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import psutil
from aiohttp import web

from ...runtime.coordinator.records import ExecutorView
from ..app_keys import COORDINATOR, SETTINGS
from ..gpu_memory import read_gpus
from ..websocket import server_features

# The API that we speak; clients switch features by it.
COMFYUI_VERSION: Final = "0.8.0"
FRONTEND_VERSION: Final = "1.35.9"
TEMPLATES_VERSION: Final = "0.7.67"


async def get_system_stats(request: web.Request) -> web.Response:
    """The machine and its devices, in ComfyUI's fields."""
    memory = psutil.virtual_memory()
    system: dict[str, object] = {
        "os": sys.platform,
        "ram_total": memory.total,
        "ram_free": memory.available,
        "comfyui_version": COMFYUI_VERSION,
        "required_frontend_version": FRONTEND_VERSION,
        "installed_templates_version": None,
        "required_templates_version": TEMPLATES_VERSION,
        "python_version": sys.version,
        "pytorch_version": _installed("torch"),
        "embedded_python": False,
        "argv": sys.argv,
    }
    return web.json_response(
        {"system": system, "devices": await _devices(request.app[COORDINATOR].executors())}
    )


async def get_features(request: web.Request) -> web.Response:
    """What the server can do."""
    return web.json_response(server_features(request.app[SETTINGS]))


async def get_healthz(request: web.Request) -> web.Response:
    """The process answers."""
    return web.json_response({"status": "ok"})


async def get_readyz(request: web.Request) -> web.Response:
    """200 once an executor can take work, else 503."""
    num_executors = len(request.app[COORDINATOR].executors())
    status = 200 if num_executors else 503
    return web.json_response({"executors": num_executors}, status=status)


def _installed(package: str) -> str:
    """The version that is installed, read without importing the package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


async def _devices(executors: Iterable[ExecutorView]) -> list[dict[str, object]]:
    """The executors' devices, each once. On the CPU its memory is the machine's, as in ComfyUI."""
    memory = psutil.virtual_memory()
    names = sorted({executor.device for executor in executors}) or ["cpu"]
    gpus = await read_gpus() if any(name != "cpu" for name in names) else {}
    devices: list[dict[str, object]] = []
    for name in names:
        kind, _, index = name.partition(":")
        gpu = gpus.get(int(index or 0))
        if kind == "cpu":
            devices.append(_device("cpu", None, memory.total, memory.available))
        elif gpu is not None:
            shown = f"{name} {gpu.name} : native"  # clients split at the colon with blanks
            devices.append(_device(shown, int(index or 0), gpu.total_bytes, gpu.free_bytes))
    return devices


def _device(name: str, index: int | None, total_bytes: int, free_bytes: int) -> dict[str, object]:
    return {
        "name": name,
        "type": name.split(":")[0],
        "index": index,
        "vram_total": total_bytes,
        "vram_free": free_bytes,
        "torch_vram_total": total_bytes,
        "torch_vram_free": free_bytes,
    }
