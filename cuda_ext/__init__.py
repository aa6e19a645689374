"""The metal: native allocators, and later the arenas and the device modules.

Nothing native is loaded at import. `native_status()` tries and says what came of it; code that
needs the allocators imports them from `._native`, and an ImportError there is loud: there is no
slower stand-in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

if __name__ != "nodeloom.cuda_ext":
    raise ImportError(f"this package is nodeloom.cuda_ext; it must not be imported as {__name__!r}")

EXPECTED_ABI: Final = 1  # of csrc/native.cpp: kAbi


@dataclass(frozen=True, slots=True)
class NativeStatus:
    """Whether the native module works here; if not, `reason` says why.

    `abi` is None and `compiler` is empty if it did not even load.
    """

    is_loaded: bool
    reason: str
    abi: int | None = None
    compiler: str = ""


def native_status() -> NativeStatus:
    """Load `_native` and say whether that worked, or why not. Never raises."""
    try:
        from ._native import ABI, COMPILER
    except ModuleNotFoundError as error:
        return NativeStatus(
            is_loaded=False,
            reason=f"{error}: installed where no C++ compiler worked; install one, then nodeloom",
        )
    except ImportError as error:
        return NativeStatus(is_loaded=False, reason=f"_native does not load: {error}")
    return check_abi(ABI, COMPILER)


def check_abi(abi: int, compiler: str) -> NativeStatus:
    """The status of a module that loaded: it must be the one this Python code was written for."""
    if abi != EXPECTED_ABI:
        reason = f"_native has ABI {abi}, expected {EXPECTED_ABI}: build nodeloom again"
        return NativeStatus(is_loaded=False, reason=reason, abi=abi, compiler=compiler)
    return NativeStatus(is_loaded=True, reason="", abi=abi, compiler=compiler)
