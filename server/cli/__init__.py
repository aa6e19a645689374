"""The command line: `nodeloom COMMAND ...`, one module per command, imported when it is called.

Every command module has `main(arguments) -> exit code`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Final, cast

COMMANDS: Final = {
    "serve": "start the server with its executors",
    "run": "run a workflow on a server and save what it draws",
    "register": "make a workflow invokable by name on a server",
    "convert": "print any workflow file as a prompt in API format",
    "plan": "show what a workflow is lowered to, without running it",
    "doctor": "check this machine and installation",
    "demo": "start a server and draw a first picture",
}
USAGE_ERROR: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Dispatch to a command; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if given else USAGE_ERROR
    if given[0] == "--version":
        print(f"nodeloom {version('nodeloom')}")
        return 0
    if given[0] not in COMMANDS:
        print(f"nodeloom: no such command: {given[0]}\n\n{usage()}", file=sys.stderr)
        return USAGE_ERROR
    module = import_module(f"{__name__}.{given[0]}")
    command = cast(Callable[[Sequence[str]], int], module.main)
    return command(given[1:])


def usage() -> str:
    """The commands, one a line."""
    lines = [f"  {name:<8} {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        ["usage: nodeloom COMMAND [flags]", "", *lines, "", "COMMAND --help says more."]
    )
