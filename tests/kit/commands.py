"""`nodeloom COMMAND` as a process, as a person starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT_S = 240


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start it; whoever starts it reads its output and waits for it."""
    command = [sys.executable, "-m", "nodeloom.server.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    command = [sys.executable, "-m", "nodeloom.server.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


def read_until(process: subprocess.Popen[str], words: str, *, of_stderr: bool = False) -> str:
    """The first line with `words` in it. Raises: AssertionError: it ended without."""
    stream = process.stderr if of_stderr else process.stdout
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line)
        if words in line:
            return line
    raise AssertionError(f"{words!r} is not in its output:\n{''.join(seen)}")
