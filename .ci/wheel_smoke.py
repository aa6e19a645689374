"""Tries an installed wheel: run outside the checkout, in the environment that the wheel is in.

Usage: wheel_smoke.py CHECKOUT. Fails if a room, the native module or a data file is missing.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

ROOMS = ("server", "graph_import", "runtime", "cuda_ext", "web", "workflows")
BUILD_INPUTS = ("*.cpp", "*.hpp", "*.cu", "*.cuh", "CMakeLists.txt")  # compiled, not shipped


def import_every_module() -> int:
    """Import all modules of all rooms; returns how many."""
    count = 0
    for room_name in ROOMS:
        room = importlib.import_module(f"nodeloom.{room_name}")
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
                count += 1
    return count


def is_build_input(path: Path) -> bool:
    """Whether the file is only needed for compiling."""
    return any(path.match(pattern) for pattern in BUILD_INPUTS)


def missing_files(checkout: Path, installed: Path) -> list[str]:
    """What lies in the checkout's rooms and should be in the wheel, but isn't."""
    missing = []
    for room in ROOMS:
        for path in sorted((checkout / room).rglob("*")):
            inside = path.relative_to(checkout)
            wanted = path.is_file() and "__pycache__" not in path.parts and not is_build_input(path)
            if wanted and not (installed / inside).is_file():
                missing.append(str(inside))
    return missing


def main() -> None:
    checkout = Path(sys.argv[1])
    nodeloom = importlib.import_module("nodeloom")
    installed = Path(nodeloom.__file__).parent
    if not installed.is_relative_to(sys.prefix):
        sys.exit(f"this is not the wheel's nodeloom: {installed}")
    if nodeloom.__version__ != version("nodeloom"):
        sys.exit(f"__version__ {nodeloom.__version__} is not the wheel's {version('nodeloom')}")
    num_modules = import_every_module()
    if missing := missing_files(checkout, installed):
        sys.exit(f"not in the wheel: {missing}")
    if left := [str(path) for path in installed.rglob("*") if is_build_input(path)]:
        sys.exit(f"sources in the wheel: {left}")
    if not (installed / "py.typed").is_file():
        sys.exit("no py.typed")
    if not files("nodeloom.web").joinpath("index.html").is_file():
        sys.exit("the page can't be read as package data")
    status = importlib.import_module("nodeloom.cuda_ext").native_status()
    if not status.is_loaded:
        sys.exit(f"native module: {status.reason}")
    command = [Path(sys.prefix) / "bin" / "nodeloom", "--help"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    if "usage" not in said.lower():
        sys.exit(f"nodeloom --help says: {said!r}")
    print(f"wheel of nodeloom {nodeloom.__version__}: {num_modules} modules, {status.compiler}")


if __name__ == "__main__":
    main()
