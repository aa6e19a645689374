"""Who may import whom: the arrows between the rooms, and what a fresh process must not load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from house.sources import ROOMS, Source, all_python, assert_clean, product_python
from nodeloom.graph_import import dsl

# What a module of ours may import of ours: the first prefix that matches decides.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "nodeloom.graph_import": ("nodeloom.graph_import",),
    "nodeloom.cuda_ext": ("nodeloom.cuda_ext",),
    "nodeloom.web": ("nodeloom.web",),
    "nodeloom.workflows": (
        "nodeloom.workflows",
        "nodeloom.graph_import.dsl",
        *(f"nodeloom.{name}" for name in dsl.__all__),  # what the package itself may offer users
    ),
    "nodeloom.runtime.data_plane": (
        "nodeloom.runtime",
        "nodeloom.graph_import",
        "nodeloom.cuda_ext",
    ),
    "nodeloom.runtime.executor": ("nodeloom.runtime", "nodeloom.graph_import", "nodeloom.cuda_ext"),
    "nodeloom.runtime": ("nodeloom.runtime", "nodeloom.graph_import"),
    "nodeloom.server": (
        "nodeloom.server",
        "nodeloom.graph_import",
        "nodeloom.web",
        "nodeloom.runtime.coordinator.service",
        "nodeloom.runtime.coordinator.records",  # the types in the service's signatures
        "nodeloom.runtime.database",
        "nodeloom.runtime.notices",
        "nodeloom.runtime.errors",
        "nodeloom.runtime.ids",
        "nodeloom.runtime.config",
        "nodeloom.runtime.logs",
        "nodeloom.runtime.metrics",
        "nodeloom.runtime.models.headers",
        "nodeloom.runtime.executor.main",
    ),
}
# Inside the plant: who besides itself may import this package.
IMPORTED_BY: dict[str, tuple[str, ...]] = {
    "nodeloom.runtime.scheduler": ("nodeloom.runtime.coordinator",),
    "nodeloom.runtime.coordinator": ("nodeloom.server",),
    "nodeloom.runtime.executor": ("nodeloom.server",),
}
FOREIGN_NAMES = ("nodes", "folder_paths", "execution")


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def forbidden_arrows(source: Source) -> Iterator[str]:
    allowed = next(may for owner, may in MAY_IMPORT.items() if is_within(source.module, owner))
    for item in source.imports():
        if not item.is_within("nodeloom") or item.name == "nodeloom.__version__":
            continue
        if not item.is_relative and source.room != "workflows":  # examples: as users write them
            yield source.at(item.line, f"inside the rooms {item.name} is imported relatively")
        if not item.is_within(*allowed):
            yield source.at(item.line, f"{source.module} may not import {item.name}")
            continue
        for package, importers in IMPORTED_BY.items():
            may = any(is_within(source.module, m) for m in (package, *importers))
            if item.is_within(package) and not may:
                yield source.at(item.line, f"only {importers} may import {item.name}")


def bare_names(source: Source) -> Iterator[str]:
    for item in source.imports():
        if not item.is_relative and item.is_within(*ROOMS, *FOREIGN_NAMES):
            yield source.at(item.line, f"bare import of {item.name}: it belongs to the shims")


def test_rooms_import_only_what_the_table_allows() -> None:
    assert_clean(forbidden_arrows, product_python())


def test_nothing_imports_a_room_by_its_bare_name() -> None:
    assert_clean(bare_names, all_python())


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("graph_import/comfy/importer.py", "from ...runtime.ids import RequestId"),
        ("graph_import/x.py", "from .. import runtime"),
        ("cuda_ext/__init__.py", "from ..graph_import import ir"),
        ("web/__init__.py", "def f():\n    from ..server import app"),
        ("runtime/protocol.py", "from ..server.app import build_app"),
        ("runtime/ops/image.py", "from ...cuda_ext import native_status"),
        ("runtime/ops/image.py", "from ..scheduler.events import NodeDone"),
        ("runtime/executor/loop.py", "from ..coordinator.service import Coordinator"),
        ("runtime/executor/loop.py", "from ..scheduler import scheduler"),
        ("runtime/scheduler/scheduler.py", "from ..coordinator import journal"),
        ("server/app.py", "from ..runtime.scheduler.events import Event"),
        ("server/app.py", "from ..runtime.coordinator.store import Store"),
        ("server/app.py", "from ..runtime import data_plane"),
        ("server/app.py", "from ..cuda_ext import native_status"),
        ("server/app.py", "from nodeloom.runtime.ids import RequestId"),
        ("workflows/text_to_image.py", "from nodeloom.graph_import.ir import Graph"),
    ],
)
def test_the_checker_finds_a_forbidden_arrow(path: str, line: str) -> None:
    assert len(list(forbidden_arrows(Source(path, line)))) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("graph_import/comfy/importer.py", "from ..ir import Graph"),
        ("runtime/__init__.py", "from .ids import RequestId"),
        ("runtime/data_plane/arena.py", "from ...cuda_ext._native import BestFitAllocator"),
        ("runtime/coordinator/service.py", "from ..scheduler.scheduler import Scheduler"),
        ("server/app.py", "from .. import __version__"),
        ("server/app.py", "from ..runtime.coordinator import service"),
        ("server/supervisor.py", "from ..runtime.executor.main import main"),
        ("server/app.py", "import torch"),
        ("workflows/text_to_image.py", "from nodeloom.graph_import.dsl import workflow"),
        ("workflows/text_to_image.py", "from nodeloom import workflow"),
    ],
)
def test_the_checker_lets_an_allowed_arrow_pass(path: str, line: str) -> None:
    assert list(forbidden_arrows(Source(path, line))) == []


@pytest.mark.parametrize(
    "line",
    ["import server", "import runtime.ids", "from nodes import X", "import folder_paths as f"],
)
def test_the_checker_finds_a_bare_name(line: str) -> None:
    assert len(list(bare_names(Source("tests/x.py", line)))) == 1


def test_the_checker_knows_a_relative_name_from_a_bare_one() -> None:
    source = Source("graph_import/comfy/x.py", "from ..nodes import registry\nfrom . import nodes")
    assert list(bare_names(source)) == []


IMPORT_ALL = """
import importlib, pkgutil, sys
room = importlib.import_module(sys.argv[1])
for found in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
print(*sorted(set(sys.argv[2:]) & set(sys.modules)))
"""


def loaded_by(package: str, *watched: str, cwd: Path) -> str:
    """Which of `watched` a fresh process has loaded after importing every module of `package`."""
    command = [sys.executable, "-c", IMPORT_ALL, package, *watched]
    run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("package", "watched"),
    [
        ("nodeloom.graph_import", ("torch", "zmq", "aiohttp", "diffusers", "transformers")),
        ("nodeloom.server", ("torch", "diffusers", "transformers")),
        ("nodeloom.runtime.coordinator", ("torch", "diffusers", "transformers", "aiohttp")),
        ("nodeloom.runtime.scheduler", ("torch", "zmq", "aiohttp")),
    ],
)
def test_a_fresh_process_loads_no_heavy_package(
    package: str, watched: tuple[str, ...], tmp_path: Path
) -> None:
    assert loaded_by(package, *watched, cwd=tmp_path) == ""


def test_the_fresh_process_reports_what_it_loaded(tmp_path: Path) -> None:
    assert loaded_by("nodeloom.graph_import", "msgspec", "torch", cwd=tmp_path) == "msgspec"
