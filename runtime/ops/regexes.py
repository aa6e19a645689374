"""The bodies of nodes with users' patterns: each pattern runs in a process that can be ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ...graph_import.text_functions import MAX_TEXT_LENGTH
from ..errors import NodeFailed
from .arguments import argument
from .base import OpCall, OpContext, OpResult

CHILD: Final = Path(__file__).with_name("regex_child.py")
TIMEOUT_S: Final = 2.0  # of processor time an ordinary pattern takes milliseconds
MAX_PATTERN_LENGTH: Final = 10_000


def regex_match(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """string, regex_pattern, flags -> BOOLEAN: whether the pattern occurs."""
    return [_run(context, call, "regex_match", {}) for call in calls]


def regex_extract(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """string, regex_pattern, flags, mode, group_index -> STRING."""
    return [
        _run(
            context,
            call,
            "regex_extract",
            {
                "mode": argument(call, "mode", str),
                "group_index": argument(call, "group_index", int),
            },
        )
        for call in calls
    ]


def regex_replace(context: OpContext, calls: Sequence[OpCall]) -> list[OpResult]:
    """string, regex_pattern, flags, replace, count (0: all) -> STRING."""
    return [
        _run(
            context,
            call,
            "regex_replace",
            {"replace": argument(call, "replace", str), "count": argument(call, "count", int)},
        )
        for call in calls
    ]


def _run(context: OpContext, call: OpCall, op: str, more: Mapping[str, object]) -> OpResult:
    context.check_cancelled()
    question = {
        "op": op,
        "string": argument(call, "string", str),
        "regex_pattern": argument(call, "regex_pattern", str),
        **{
            name: argument(call, name, bool) for name in ("case_insensitive", "multiline", "dotall")
        },
        **more,
    }
    for name, limit in (("string", MAX_TEXT_LENGTH), ("regex_pattern", MAX_PATTERN_LENGTH)):
        if len(str(question[name])) > limit:
            raise NodeFailed(f"{name} has more than {limit} characters", input=name)
    value = _asked(question)
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        raise NodeFailed(f"the result has more than {MAX_TEXT_LENGTH} characters")
    return OpResult(outputs=(value,))


def _asked(question: Mapping[str, object]) -> bool | str:
    """The child's answer. Raises: NodeFailed: it took too long, or the pattern makes no sense."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(CHILD)],
            input=msgspec.json.encode(question),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise NodeFailed(
            f"the pattern took longer than {TIMEOUT_S} s", input="regex_pattern"
        ) from expired
    if done.returncode != 0:
        raise NodeFailed("the pattern needs too much time or memory", input="regex_pattern")
    given: dict[str, Any] = msgspec.json.decode(done.stdout)
    if "problem" in given:
        raise NodeFailed(str(given["problem"]), input="regex_pattern")
    value = given["value"]
    return value if isinstance(value, bool) else str(value)
