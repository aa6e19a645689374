"""Cases of `conformance` on a golden set, as tests take them."""

from __future__ import annotations

from kit.goldens import golden_folder

from conformance.__main__ import EXCEPTIONS
from conformance.case import Cases, exceptions_at


def failures(cases: Cases, golden_set: str, part: str = "") -> tuple[int, list[str]]:
    """How many cases have `part` in their name, and which fail although nothing says they may."""
    listed = exceptions_at(EXCEPTIONS)
    chosen = [case for case in cases(golden_folder(golden_set)) if part in case.name]
    return len(chosen), [
        case.name for case in chosen if case.name not in listed and not case.run().passes
    ]
