"""`nodeloom doctor`: is everything here that a server needs? Exit status 0 if so, 1 if not."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from ...runtime.config import add_flags, read_settings
from ...runtime.errors import SettingsProblem
from .health_checks import Check, Verdict, all_checks
from .terminal import put, put_json, tell

BROKEN: Final = 1
USAGE_ERROR: Final = 2
_MARKS: Final = {Verdict.GOOD: "ok", Verdict.NOTE: "note", Verdict.BROKEN: "BROKEN"}


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="nodeloom doctor",
        description="Check this machine and installation. Takes the flags of `nodeloom serve`.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_flags(parser)
    args = parser.parse_args(arguments)
    try:
        settings = read_settings(args, os.environ)
        checks = all_checks(settings, sys.executable)
    except SettingsProblem as problem:
        tell(f"nodeloom doctor: {problem.message}")
        return USAGE_ERROR
    is_healthy = all(check.verdict is not Verdict.BROKEN for check in checks)
    if args.json:
        put_json({"is_healthy": is_healthy, "checks": msgspec.to_builtins(checks)})
    else:
        _print(checks, is_healthy)
    return 0 if is_healthy else BROKEN


def _print(checks: Sequence[Check], is_healthy: bool) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        put(f"{_MARKS[check.verdict]:<7} {check.name:<{width}}  {check.detail}")
    put("")
    put("ready to serve" if is_healthy else "not ready: see the lines marked BROKEN")
