"""The allocators' C++ under AddressSanitizer and UBSan, without Python around them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CSRC = HERE.parent.parent / "cuda_ext" / "csrc"
FLAGS = [
    "-std=c++17",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
]
CLEAN_PROGRAM = "int main() { return 0; }"
BROKEN_PROGRAM = "int main(int n, char**) { int* p = new int[1]; delete[] p; return p[n - 1]; }"


def build(compiler: str, source: Path, program: Path, *more: str) -> None:
    command = [compiler, *FLAGS, *more, str(source), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr


def run(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A compiler whose sanitizers work here: they find a planted error and pass a clean program."""
    found = shutil.which(os.environ.get("CXX", "g++"))
    if found is None:
        pytest.skip("no C++ compiler here")
    folder = tmp_path_factory.mktemp("sanitizers")
    for name, text in (("clean", CLEAN_PROGRAM), ("broken", BROKEN_PROGRAM)):
        (folder / f"{name}.cpp").write_text(text)
    command = [found, *FLAGS[:3], *FLAGS[6:], folder / "clean.cpp", "-o", folder / "clean"]
    if subprocess.run(command, capture_output=True, timeout=300).returncode != 0:
        pytest.skip("this compiler has no sanitizers")
    if run(folder / "clean").returncode != 0:
        pytest.skip("sanitized programs can't run here")
    build(found, folder / "broken.cpp", folder / "broken", "-Wno-use-after-free")
    assert "heap-use-after-free" in run(folder / "broken").stderr
    return found


def test_allocators_hold_under_the_sanitizers(compiler: str, tmp_path: Path) -> None:
    program = tmp_path / "allocator_check"
    build(compiler, HERE / "allocator_check.cpp", program, f"-I{CSRC}")
    ran = run(program)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "allocators hold"
