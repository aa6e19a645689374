"""`native_status()` says whether the native module works, and if not, why not."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from nodeloom import cuda_ext

ASK = """
from nodeloom.cuda_ext import native_status
status = native_status()
print(status.is_loaded, status.reason, sep='|')
"""


def ask_copy_without_native(folder: Path, module: bytes | None) -> str:
    """What a copy of the package says in which `_native` is missing, or is the bytes `module`."""
    package = folder / "nodeloom" / "cuda_ext"
    package.mkdir(parents=True)
    (folder / "nodeloom" / "__init__.py").touch()
    source = Path(cuda_ext.__file__)
    (package / "__init__.py").write_bytes(source.read_bytes())
    if module is not None:
        (package / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(module)
    # -S: without site-packages there is no other nodeloom to be found.
    command = [sys.executable, "-S", "-c", ASK]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_the_native_module_is_loaded_here() -> None:
    status = cuda_ext.native_status()
    assert status.is_loaded, status.reason
    assert status.reason == ""
    assert status.abi == cuda_ext.EXPECTED_ABI
    assert status.compiler.startswith(("gcc", "clang"))


def test_a_missing_module_is_told_with_the_cure(tmp_path: Path) -> None:
    said = ask_copy_without_native(tmp_path, None)
    assert said.startswith("False|")
    assert "no C++ compiler" in said


def test_a_module_that_does_not_load_is_told_with_the_loaders_reason(tmp_path: Path) -> None:
    said = ask_copy_without_native(tmp_path, b"not a shared library")
    assert said.startswith("False|_native does not load: ")
    assert "_native" in said.removeprefix("False|_native does not load: ")


def test_a_module_of_another_abi_is_refused() -> None:
    status = cuda_ext.check_abi(cuda_ext.EXPECTED_ABI + 1, "gcc 12")
    assert not status.is_loaded
    assert "build nodeloom again" in status.reason
    assert status.abi == cuda_ext.EXPECTED_ABI + 1
