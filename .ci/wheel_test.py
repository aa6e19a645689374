"""Builds a wheel of the checkout, installs it into an environment outside it, and tries it there.

That environment borrows the dependencies from the one that runs this: a .pth file puts them behind
its own site-packages, so `nodeloom` is the wheel's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PIP = ("-m", "pip", "--disable-pip-version-check")


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command and end with it if it fails."""
    done = subprocess.run(command, cwd=cwd, check=False)
    if done.returncode != 0:
        sys.exit(f"wheel test: {' '.join(map(str, command))} ended with {done.returncode}")


def make_environment(folder: Path) -> Path:
    """A new environment that also sees the packages of this one; returns its python."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    scheme = {"base": str(folder), "platbase": str(folder)}
    own = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="nodeloom-wheel-") as name:
        folder = Path(name).resolve()
        build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
        run(sys.executable, *PIP, *build, ".", cwd=CHECKOUT)
        (wheel,) = folder.glob("nodeloom-*.whl")
        python = make_environment(folder / "venv")
        run(python, *PIP, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
        smoke = shutil.copy(CHECKOUT / ".ci" / "wheel_smoke.py", folder)
        run(python, "-P", smoke, CHECKOUT, cwd=folder)


if __name__ == "__main__":
    main()
