"""GET /system_stats, /features, /healthz, /readyz. Source: spec comfyui-api/api.md, section 10."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import psutil
from aiohttp import web

from ..app_keys import COORDINATOR, SETTINGS
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
    devices = sorted({executor.device for executor in request.app[COORDINATOR].executors()})
    return web.json_response(
        {"system": system, "devices": [_device(device, memory) for device in devices or ["cpu"]]}
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


def _device(device: str, memory: psutil._pslinux.svmem) -> dict[str, object]:
    """One device. On the CPU its memory is the machine's, as in ComfyUI."""
    kind, _, index = device.partition(":")
    return {
        "name": device,
        "type": kind,
        "index": int(index) if index else None,
        "vram_total": memory.total,
        "vram_free": memory.available,
        "torch_vram_total": memory.total,
        "torch_vram_free": memory.available,
    }
