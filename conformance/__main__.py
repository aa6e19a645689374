"""`python -m conformance`: every recorded case of ComfyUI 0.8.0, run through our code.

A table by golden file, the cases that fail with their errors and reasons, and JSON as the last
line. Exit status 1: a case fails that `exceptions.toml` doesn't list.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Final

import torch

from .case import Case, Outcome, exceptions_at, goldens_folder

LIBRARIES: Final = ("torch", "numpy", "scipy", "pillow", "kornia", "diffusers", "transformers")
PREFACE: Final = """# Conformance with ComfyUI 0.8.0

What ComfyUI 0.8.0 gave for thousands of small inputs was recorded once, on a CPU in float32. Each
recorded case is computed here and compared within the tolerance that the records state; none is
widened. A case passes, or stands in the second table with its error and the reason. This page is
written by

    make conformance REPORT=docs/conformance.md

which fails where a case fails that has no reason in `conformance/exceptions.toml`, and needs the
records (`NODELOOM_GOLDENS`). Last run on one thread with {versions}.

"""
EXCEPTIONS: Final = Path(__file__).with_name("exceptions.toml")
MODULES: Final = tuple(
    path.stem
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if path.stem not in ("__init__", "__main__", "case", "corpus")
    and "def cases(" in path.read_text("utf-8")
)


@dataclass(slots=True)
class Tally:
    """How one golden file's cases came out; `worst` is the largest share of a tolerance used."""

    passed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    worst: float = 0.0
    seconds: float = 0.0


def main() -> int:
    """Run all cases; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("--goldens", type=Path, default=goldens_folder())
    parser.add_argument("--only", nargs="+", choices=MODULES, default=MODULES, metavar="FILE")
    parser.add_argument("--markdown", type=Path, help="write the report there, too")
    args = parser.parse_args()
    if not args.goldens.is_dir():
        print(f"skipped: {args.goldens} is missing", file=sys.stderr)
        print(json.dumps({"skipped": True}))
        return 0
    torch.set_num_threads(1)
    reasons = exceptions_at(EXCEPTIONS)
    tallies = {name: run(name, args.goldens) for name in args.only}
    failed = {case: text for tally in tallies.values() for case, text in tally.failed.items()}
    lines = list(report(tallies, reasons))
    print("\n".join(lines))
    if args.markdown is not None:
        args.markdown.write_text(preface() + "\n".join(lines) + "\n", "utf-8")
    unlisted = sorted(failed.keys() - reasons.keys())
    summary = {
        "cases": sum(tally.passed + len(tally.failed) for tally in tallies.values()),
        "passed": sum(tally.passed for tally in tallies.values()),
        "listed": len(failed) - len(unlisted),
        "unlisted": len(unlisted),
        "first_unlisted": unlisted[:10],
    }
    print(json.dumps(summary))
    return 1 if unlisted else 0


def run(module: str, goldens: Path) -> Tally:
    """The cases of one file."""
    tally, started = Tally(), time.monotonic()
    cases: Iterator[Case] = import_module(f".{module}", __package__).cases(goldens)
    for case in cases:
        outcome = _outcome(case)
        if outcome.passes:
            tally.passed += 1
            if outcome.tolerance:
                tally.worst = max(tally.worst, outcome.error / outcome.tolerance)
        else:
            error = f"{outcome.error:.3g} where {outcome.tolerance:.3g} is allowed"
            tally.failed[case.name] = outcome.note or error
    tally.seconds = time.monotonic() - started
    return tally


def preface() -> str:
    """What stands before the report where it is a page of its own."""
    return PREFACE.format(versions=", ".join(f"{name} {version(name)}" for name in LIBRARIES))


def report(tallies: dict[str, Tally], reasons: dict[str, str]) -> Iterator[str]:
    """The report's lines, in Markdown."""
    yield "| recorded cases | pass | fail | largest share of a tolerance | seconds |"
    yield "|---|---|---|---|---|"
    for name, tally in tallies.items():
        yield (
            f"| {name} | {tally.passed} | {len(tally.failed)} | {tally.worst:.2g} | "
            f"{tally.seconds:.0f} |"
        )
    failed = [(case, text) for tally in tallies.values() for case, text in tally.failed.items()]
    if failed:
        yield ""
        yield "| fails | error | reason |"
        yield "|---|---|---|"
    for case, text in failed:
        yield f"| {_cell(case)} | {_cell(text)} | {_cell(reasons.get(case, '**not listed**'))} |"


def _outcome(case: Case) -> Outcome:
    """The case's outcome; whatever our code raises is an infinite error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case.run()
    except Exception as problem:  # noqa: BLE001  (a case that can't be run fails, with the reason)
        text = f"{type(problem).__name__}: {problem}".split("\n")[0]
        return Outcome(float("inf"), 0.0, text[:160])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
